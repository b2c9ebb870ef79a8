package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// closing is a storage that can be closed, and nothing more.
type closing struct{ closed int }

func (*closing) New() runtime.Object { return &corev1.Pod{} }
func (c *closing) Destroy()          { c.closed++ }

func TestStorages(t *testing.T) {
	all, pods := Storages{}, &closing{}
	at := corev1.SchemeGroupVersion.WithResource("pods")
	if err := all.Open(nil, PartOf(at, map[string]rest.Storage{"pods": pods})); err != nil {
		t.Fatal(err)
	}
	// A part of it that is opened later is beside it.
	if err := all.Open(nil, PartOf(at, map[string]rest.Storage{"pods/log": &closing{}})); err != nil {
		t.Fatal(err)
	}
	if err := all.Open(nil, PartOf(at, map[string]rest.Storage{"pods/log": &closing{}})); err == nil || err.Error() != "pods/log is served twice in v1" {
		t.Errorf("the same once more: %v", err)
	}
	if found, err := Find[*closing](all, corev1.SchemeGroupVersion, "pods"); err != nil || found != pods {
		t.Errorf("found %v, %v", found, err)
	}
	for path, want := range map[string]string{"pods": "is a *resource.closing, not a rest.Getter", "nodes": "is a <nil>, not a rest.Getter"} {
		if _, err := Find[rest.Getter](all, corev1.SchemeGroupVersion, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want that it %s", path, err, want)
		}
	}
	if all.Close(); pods.closed != 1 {
		t.Errorf("it was closed %d times", pods.closed)
	}
}
