package apiserver_test

import (
	"encoding/json"
	"testing"
)

// TestAnswersOfPutAndDelete: what a PUT makes where there is nothing, and what a DELETE is answered with, as with other API servers.
func TestAnswersOfPutAndDelete(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c := i.admin(t).CoreV1().RESTClient()
	const core = "/api/v1/namespaces/default/"
	for name, tc := range map[string]struct {
		path, body string
		puts       bool   // a PUT makes it
		deleted    string // the kind that its deletion is answered with
	}{
		"service":        {core + "services", `"kind":"Service","apiVersion":"v1","spec":{"ports":[{"port":80}]}`, true, "Service"},
		"endpoints":      {core + "endpoints", `"kind":"Endpoints","apiVersion":"v1"`, true, "Status"},
		"limitrange":     {core + "limitranges", `"kind":"LimitRange","apiVersion":"v1","spec":{"limits":[]}`, true, "Status"},
		"priorityclass":  {"/apis/scheduling.k8s.io/v1/priorityclasses", `"kind":"PriorityClass","apiVersion":"scheduling.k8s.io/v1","value":5`, true, "Status"},
		"serviceaccount": {core + "serviceaccounts", `"kind":"ServiceAccount","apiVersion":"v1"`, false, "ServiceAccount"},
		"podtemplate":    {core + "podtemplates", `"kind":"PodTemplate","apiVersion":"v1","template":{"spec":{"containers":[{"name":"c","image":"i"}]}}`, false, "PodTemplate"},
		"configmap":      {core + "configmaps", `"kind":"ConfigMap","apiVersion":"v1"`, false, "Status"},
	} {
		body := []byte(`{"metadata":{"name":"a` + name + `"},` + tc.body + `}`)
		status := 0
		answer, err := c.Put().AbsPath(tc.path, "a"+name).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(t.Context()).StatusCode(&status).Raw()
		if want := map[bool]int{true: 201, false: 404}[tc.puts]; status != want {
			t.Errorf("%s: a PUT is answered with %d, %v; want %d", name, status, err, want)
		}
		if tc.puts && name == "service" {
			var made struct{ Spec struct{ ClusterIP string } }
			if err := json.Unmarshal(answer, &made); err != nil || made.Spec.ClusterIP == "" {
				t.Errorf("the service that was made has no address: %s, %v", answer, err)
			}
		}
		if !tc.puts {
			if err := c.Post().AbsPath(tc.path).SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		answer, err = c.Delete().AbsPath(tc.path, "a"+name).SetHeader("Accept", "application/json").Do(t.Context()).Raw()
		var gone struct{ Kind string }
		if json.Unmarshal(answer, &gone) != nil || gone.Kind != tc.deleted {
			t.Errorf("%s: a DELETE is answered with %s, %v; want a %s", name, answer, err, tc.deleted)
		}
	}
}
