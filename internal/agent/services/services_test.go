package services

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/test/apitest"
)

// as is a client with the rights of somebody else.
func as(t *testing.T, api *apitest.API, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	cfg := rest.CopyConfig(api.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func create(t *testing.T, api *apitest.API, name string) *v1.Service {
	t.Helper()
	s, err := api.Client.CoreV1().Services("default").Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "x"}, Ports: []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func values(t *testing.T, s *Services, pod *v1.Pod) map[string]string {
	t.Helper()
	vars, err := s.Variables(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range vars {
		got[v.Name] = v.Value
	}
	return got
}

func podIn(namespace string, links *bool) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: v1.PodSpec{EnableServiceLinks: links}}
}

// TestVariables asks a real API server with the rights of a node.
func TestVariables(t *testing.T) {
	api := apitest.Start(t)
	node := as(t, api, "system:node:n", "system:nodes", "system:authenticated")
	web := create(t, api, "web")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	given := netip.MustParseAddrPort("10.61.0.1:6443")
	s, elsewhere := New(ctx, Config{Kube: node, Patience: apitest.Timeout}), New(ctx, Config{Kube: node, API: &given, Patience: apitest.Timeout})
	t.Cleanup(func() { cancel(); s.Wait(); elsewhere.Wait() })

	no := false
	if got := values(t, elsewhere, podIn("default", &no)); got["KUBERNETES_SERVICE_HOST"] != "10.61.0.1" || got["WEB_SERVICE_HOST"] != "" || elsewhere.store != nil {
		t.Errorf("without links, and the API's address given: %v, watches: %v", got, elsewhere.store != nil)
	}
	if got := values(t, elsewhere, podIn("default", nil)); got["KUBERNETES_SERVICE_HOST"] != "10.61.0.1" || got["WEB_SERVICE_HOST"] != web.Spec.ClusterIP {
		t.Errorf("the API's address given: %v", got)
	}
	if got := values(t, s, podIn("default", nil)); got["WEB_SERVICE_HOST"] != web.Spec.ClusterIP || got["WEB_SERVICE_PORT_HTTP"] != "80" || got["KUBERNETES_SERVICE_HOST"] == "" {
		t.Errorf("in the namespace: %v, want WEB_SERVICE_HOST=%s", got, web.Spec.ClusterIP)
	}
	if got := values(t, s, podIn("other", nil)); got["WEB_SERVICE_HOST"] != "" || got["KUBERNETES_SERVICE_HOST"] == "" {
		t.Errorf("in another namespace: %v", got)
	}
	if got := values(t, s, podIn("default", &no)); got["WEB_SERVICE_HOST"] != "" || got["KUBERNETES_SERVICE_HOST"] == "" {
		t.Errorf("without links: %v", got)
	}
	kept, _, err := s.store.GetByKey("default/web")
	if k, ok := kept.(*v1.Service); err != nil || !ok || k.Annotations != nil || k.ManagedFields != nil || k.Spec.Selector != nil || k.Spec.Ports[0].TargetPort.IntVal != 0 {
		t.Errorf("kept: %+v, %v", kept, err)
	}

	// What comes and goes while it watches.
	api2 := create(t, api, "api-2")
	until(t, ctx, s, func(got map[string]string) bool { return got["API_2_SERVICE_HOST"] == api2.Spec.ClusterIP })
	if err := api.Client.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, s, func(got map[string]string) bool { return got["WEB_SERVICE_HOST"] == "" })
}

// until asks again until the watch has brought what is wanted, of which nothing tells.
func until(t *testing.T, ctx context.Context, s *Services, wanted func(map[string]string) bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !wanted(values(t, s, podIn("default", nil))) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the watch does not bring it")
		}
	}
}

// Who may not read services is told so, and is not kept for ever.
func TestServicesThatCannotBeRead(t *testing.T) {
	api := apitest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := New(ctx, Config{Kube: as(t, api, "nobody", "system:authenticated"), Patience: time.Second})
	t.Cleanup(func() { cancel(); s.Wait() })
	_, err := s.Variables(t.Context(), podIn("default", nil))
	if err == nil || !strings.Contains(err.Error(), "services have not yet been read at least once") || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("error %v", err)
	}
	gone, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Variables(gone, podIn("default", nil)); err == nil || strings.Contains(err.Error(), "services") {
		t.Errorf("nobody waits any more: %v", err)
	}
}

// Nothing is begun after the end.
func TestEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(ctx, Config{})
	s.Wait()
	if _, err := s.Variables(t.Context(), podIn("default", nil)); err == nil {
		t.Errorf("error %v", err)
	}
}
