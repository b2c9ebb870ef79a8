package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestNothingIsMadeInNoNamespace: whatever somebody makes in a namespace that is not there, that is what they are told, and nothing else is looked for first.
func TestNothingIsMadeInNoNamespace(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c := i.admin(t)
	_, all, err := c.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, list := range all {
		served, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !r.Namespaced || !slices.Contains(r.Verbs, "create") || served.Group == authorizationv1.GroupName {
				continue
			}
			gv := served
			if r.Version != "" {
				gv = schema.GroupVersion{Group: r.Group, Version: r.Version}
			}
			resource, part, _ := strings.Cut(r.Name, "/")
			request := c.CoreV1().RESTClient().Post().AbsPath("/apis", served.String(), "namespaces", "nowhere", resource)
			if served.Group == "" {
				request = c.CoreV1().RESTClient().Post().AbsPath("/api", served.String(), "namespaces", "nowhere", resource)
			}
			if part != "" {
				switch part {
				case "attach", "exec", "portforward", "proxy": // of what there is
					continue
				}
				request = request.Suffix("x", part)
			}
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"}}`, gv.String(), r.Kind)
			err := request.SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
			if tried++; !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "nowhere" not found`) {
				t.Errorf("%s %s: %v", list.GroupVersion, r.Name, err)
			}
		}
	}
	if tried < 25 {
		t.Errorf("%d resources were tried", tried)
	}
}
