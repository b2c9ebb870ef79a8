package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestWholeLists(t *testing.T) {
	patch := func(ports, manifest string) string {
		applied, err := json.Marshal(`{"spec":{"ports":` + manifest + `}}`)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%s}},"spec":{"$setElementOrder/ports":[],"ports":%s}}`, applied, ports)
	}
	const two = `[{"port":53},{"port":53,"protocol":"UDP"}]`
	for name, c := range map[string]struct{ patch, want string }{
		"two of a number":              {patch(`[{"port":53,"name":"u"}]`, two), `[{"$patch":"replace"},{"port":53},{"port":53,"protocol":"UDP"}]`},
		"one of two goes":              {patch(`[{"port":53,"$patch":"delete"}]`, `[{"port":53}]`), `[{"$patch":"replace"},{"port":53}]`},
		"numbers tell them apart":      {patch(`[{"port":53,"name":"u"}]`, `[{"port":53},{"port":54}]`), ""},
		"another number goes":          {patch(`[{"port":54,"$patch":"delete"}]`, `[{"port":53}]`), ""},
		"a manifest without a number":  {patch(`[{"port":53}]`, `[{"port":53},{"port":53},{}]`), ""},
		"a manifest with a directive":  {patch(`[{"port":53}]`, `[{"port":53},{"port":53},{"$patch":"delete","port":53}]`), ""},
		"ports that are none":          {patch(`{}`, two), ""},
		"nothing changes of ports":     {strings.Replace(patch(`[]`, two), `"ports":[]`, `"type":"NodePort"`, 1), ""},
		"no manifest":                  {`{"spec":{"ports":[{"port":53}]}}`, ""},
		"an annotation taken away":     {`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":null}},"spec":{"ports":[{"port":53}]}}`, ""},
		"a manifest that is not JSON":  {`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x"}},"spec":{"ports":[{"port":53}]}}`, ""},
		"not JSON":                     {`spec: {}`, ""},
		"the metadata are no object":   {`{"metadata":[],"spec":{"ports":[]}}`, ""},
		"the annotation is no string":  {`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":{}}},"spec":{"ports":[]}}`, ""},
		"the specification is nothing": {`{"metadata":{},"spec":null}`, ""},
	} {
		var got struct{ Spec members }
		if whole := wholeLists([]byte(c.patch), unmistakable["/services"]); whole != nil {
			if err := json.Unmarshal(whole, &got); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if string(got.Spec["ports"]) != c.want || got.Spec["$setElementOrder/ports"] != nil {
			t.Errorf("%s: %v, want the ports %s", name, got.Spec, c.want)
		}
	}
}

// Containers are told apart by their names, and of each the ports and variables are looked at.
func TestWholeListsOfTemplates(t *testing.T) {
	in := func(containers string) string { return `{"template":{"spec":{"containers":` + containers + `}}}` }
	patch := func(change, manifest string) string {
		applied, err := json.Marshal(`{"spec":` + in(manifest) + `}`)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%s}},"spec":%s}`, applied, in(change))
	}
	const two = `[{"containerPort":53},{"containerPort":53,"protocol":"UDP"}]`
	for name, c := range map[string]struct{ change, manifest, want string }{
		"two ports of a number": {
			`[{"name":"a","image":"i","$setElementOrder/ports":[],"ports":[{"containerPort":53,"protocol":"UDP"}]},{"name":"b"}]`, `[{"name":"b"},{"name":"a","ports":` + two + `}]`,
			`[{"image":"i","name":"a","ports":[{"$patch":"replace"},{"containerPort":53},{"containerPort":53,"protocol":"UDP"}]},{"name":"b"}]`,
		},
		"a variable that was set twice": {
			`[{"name":"a","env":[{"name":"A","value":"2"},{"name":"A","$patch":"delete"}]}]`, `[{"name":"a","env":[{"name":"A","value":"2"}]}]`,
			`[{"env":[{"$patch":"replace"},{"name":"A","value":"2"}],"name":"a"}]`,
		},
		"another container's":           {`[{"name":"b","ports":[{"containerPort":53}]}]`, `[{"name":"a","ports":` + two + `}]`, ""},
		"ports that are not changed":    {`[{"name":"a","image":"i"}]`, `[{"name":"a","ports":` + two + `}]`, ""},
		"a variable that is taken away": {`[{"name":"a","env":[{"name":"A","$patch":"delete"}]}]`, `[{"name":"a","env":[{"name":"B","value":"2"}]}]`, ""},
		"a container without a name":    {`[{"ports":[{"containerPort":53}]}]`, `[{"ports":` + two + `}]`, ""},
		"containers that are none":      {`{}`, `[{"name":"a"}]`, ""},
	} {
		var got struct {
			Spec struct {
				Template struct {
					Spec struct{ Containers json.RawMessage }
				}
			}
		}
		if whole := wholeLists([]byte(patch(c.change, c.manifest)), unmistakable["apps/deployments"]); whole != nil {
			if err := json.Unmarshal(whole, &got); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if string(got.Spec.Template.Spec.Containers) != c.want {
			t.Errorf("%s: %s, want %s", name, got.Spec.Template.Spec.Containers, c.want)
		}
	}
}

// What is no patch of a service comes through as it was sent, and so does a patch that is too large to be looked at.
func TestWithAppliedLists(t *testing.T) {
	const patch = `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"ports\":[{\"port\":1},{\"port\":1}]}}"}},"spec":{"ports":[{"port":1}]}}`
	service := genericapirequest.RequestInfo{Verb: "patch", Resource: "services"}
	status := service
	status.Subresource = "status"
	for name, c := range map[string]struct {
		info    genericapirequest.RequestInfo
		kind    string
		body    string
		changed bool
	}{
		"a service":             {service, "application/strategic-merge-patch+json", patch, true},
		"with parameters":       {service, "application/strategic-merge-patch+json; charset=utf-8", patch, true},
		"its status":            {status, "application/strategic-merge-patch+json", patch, false},
		"another kind of patch": {service, "application/merge-patch+json", patch, false},
		"another resource":      {genericapirequest.RequestInfo{Verb: "patch", Resource: "pods"}, "application/strategic-merge-patch+json", patch, false},
		"a large one":           {service, "application/strategic-merge-patch+json", patch + strings.Repeat(" ", largestApply), false},
	} {
		req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), &c.info), http.MethodPatch, "/", strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.kind)
		var got []byte
		withAppliedLists(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var err error
			if got, err = io.ReadAll(r.Body); err != nil || r.ContentLength != int64(len(got)) {
				t.Errorf("%s: %d of %d bytes, %v", name, len(got), r.ContentLength, err)
			}
		})).ServeHTTP(httptest.NewRecorder(), req)
		if (string(got) != c.body) != c.changed {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}
