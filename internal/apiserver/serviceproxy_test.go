package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/controllers/catalog"
)

// tellOrEcho is a server behind a proxy, at an address of the host: it tells what was asked or, upgraded, says the line again that it is sent.
func tellOrEcho(t *testing.T, host netip.Addr, secure bool) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			tellWhatWasAsked(w, r)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		fmt.Fprint(conn, line)
	}))
	server.Listener.Close()
	server.Listener = l
	if secure {
		server.StartTLS() // with a certificate that nobody knows
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return portOf(l.Addr())
}

// TestProxyToService: from a service by way of the controller's endpoints to the pod that is behind it.
func TestProxyToService(t *testing.T) {
	host := hostAddress(t)
	i := startWithTokens(t)
	defer i.end(t)
	defer i.control(t, catalog.Endpoints)()
	plain, secure := tellOrEcho(t, host, false), tellOrEcho(t, host, true)
	i.node(t, "n1", host.String(), 10250)
	i.readyPod(t, "web", host, plain, secure)
	c := i.admin(t)
	web := map[string]string{"app": "web"}
	for name, spec := range map[string]corev1.ServiceSpec{
		"web": {Selector: web, Ports: []corev1.ServicePort{
			{Name: "udp", Port: 80, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("http")}, {Name: "http", Port: 80, TargetPort: intstr.FromString("http")},
			{Name: "https", Port: 443, TargetPort: intstr.FromInt(secure)},
		}},
		"one":     {Selector: web, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}},
		"outside": {Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", Ports: []corev1.ServicePort{{Port: 80}}},
		"nobody":  {Selector: map[string]string{"app": "nobody"}, Ports: []corev1.ServicePort{{Port: 80}}},
		"byhand":  {Ports: []corev1.ServicePort{{Port: 80}}},
	} {
		if _, err := c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	i.awaitEndpoint(t, "web")
	i.awaitEndpoint(t, "one")
	t.Run("leads to the pod", func(t *testing.T) { leadsToThePod(t, i) })
	t.Run("is upgraded", func(t *testing.T) { isUpgraded(t, i) })
	t.Run("refuses", func(t *testing.T) { refusesToProxy(t, i, host, plain) })
	t.Run("needs rights", func(t *testing.T) { proxyNeedsRights(t, i) })
	t.Run("cluster-info", func(t *testing.T) { showsClusterInfo(t, i, plain) })
}

// readyPod makes a pod in the host's network, which its agent says is ready.
func (i *instance) readyPod(t *testing.T, name string, host netip.Addr, plain, secure int) {
	t.Helper()
	pods := i.admin(t).CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: int32(plain)}, {Name: "https", ContainerPort: int32(secure)},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: host.String(), PodIPs: []corev1.PodIP{{IP: host.String()}}, HostIP: host.String(),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitEndpoint waits for a slice of a service with an endpoint that is ready.
func (i *instance) awaitEndpoint(t *testing.T, service string) {
	t.Helper()
	minute := int64(60) // it only ends a test that fails
	w, err := i.admin(t).DiscoveryV1().EndpointSlices("default").Watch(t.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service, TimeoutSeconds: &minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok && len(s.Endpoints) > 0 && s.Endpoints[0].Conditions.Ready != nil && *s.Endpoints[0].Conditions.Ready {
			return
		}
	}
	t.Fatalf("the service %s has no ready endpoint after a minute", service)
}

func leadsToThePod(t *testing.T, i *instance) {
	c := i.client(t, withToken(i, "roots"))
	for _, at := range []struct{ scheme, name, port string }{
		{"", "web", "http"}, {"", "web", "80"}, {"http", "web", "http"}, {"https", "web", "https"}, {"https", "web", "443"}, {"", "one", ""}, {"", "one", "80"},
	} {
		got, err := c.CoreV1().Services("default").ProxyGet(at.scheme, at.name, at.port, "/a/b", map[string]string{"x": "1"}).DoRaw(t.Context())
		if want := `GET /a/b?x=1 "" by nobody, authorization ""`; err != nil || string(got) != want {
			t.Errorf("%v: %s, %v, want %s", at, got, err, want)
		}
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		got, err := c.CoreV1().RESTClient().Verb(method).AbsPath("/api/v1/namespaces/default/services/one/proxy/c/").Body([]byte("hello")).DoRaw(t.Context())
		if want := method + ` /c/ "hello" by nobody, authorization ""`; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	// Without a slash it is sent to where relative links work.
	transport, err := rest.TransportFor(withToken(i, "roots"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/default/services/web:http/proxy"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.AdminConfig().Host+path+"?x=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusMovedPermanently || !strings.HasSuffix(to, path+"/?x=1") {
		t.Errorf("%s to %q", resp.Status, to)
	}
}

func isUpgraded(t *testing.T, i *instance) {
	config, err := rest.TLSConfigFor(withToken(i, "roots"))
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "127.0.0.1"
	conn := tls.Client(i.dial(t), config)
	fmt.Fprint(conn, "GET /api/v1/namespaces/default/services/web:80/proxy/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer roots\r\n"+
		"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := answers.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// refused is the error of a proxied request as the server has said it.
func refused(t *testing.T, c kubernetes.Interface, scheme, name, port string) error {
	t.Helper()
	stream, err := c.CoreV1().Services("default").ProxyGet(scheme, name, port, "/", nil).Stream(t.Context())
	if err == nil {
		err = stream.Close()
	}
	return err
}

func refusesToProxy(t *testing.T, i *instance, host netip.Addr, plain int) {
	c := i.admin(t)
	for id, want := range map[string]string{
		"|web|81": `no service port 81 found for service "web"`, "|web|": `no service port "" found for service "web": name one of http, https`,
		"|nobody|": `no endpoints available for service "nobody"`, "|outside|80": "it stands for another name (example.com)",
		"https|kubernetes|https": `no endpoints available for service "https:kubernetes:https"`,
	} {
		at := strings.Split(id, "|")
		if err := refused(t, c, at[0], at[1], at[2]); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
	if err := refused(t, c, "", "none", ""); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `services "none" not found`) {
		t.Errorf("none: %v", err)
	}
	// What somebody has written down who may write endpoints, and no more.
	port, http := int32(plain), ""
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "byhand", Labels: map[string]string{discoveryv1.LabelServiceName: "byhand"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{host.String()}},
			{Addresses: []string{"192.0.2.7"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}},
			{Addresses: []string{host.String()}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "gone"}},
		},
	}
	slices := c.DiscoveryV1().EndpointSlices("default")
	slice, err := slices.Create(t.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = refused(t, c, "", "byhand", "")
	if !apierrors.IsServiceUnavailable(err) {
		t.Fatalf("written by hand: %v", err)
	}
	for _, want := range []string{
		`no endpoints available for service "byhand": `, host.String() + " is not said to be of a pod in namespace default (targetRef)",
		"address not allowed: 192.0.2.7 is none of the pod's (" + host.String() + ")", `pods "gone" not found`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("written by hand: %v, want %s", err, want)
		}
	}
	// One that is right is found among them.
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
		Addresses: []string{host.String()}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
	})
	if _, err := slices.Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := refused(t, c, "", "byhand", ""); err != nil {
			t.Errorf("written by hand, a pod: %v", err)
		}
	}
}

func proxyNeedsRights(t *testing.T, i *instance) {
	joe := i.client(t, withToken(i, "joes"))
	for _, role := range []string{"view", "edit"} {
		err := refused(t, joe, "", "one", "")
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot get resource "services/proxy"`) {
			t.Errorf("before he has %s: %v", role, err)
		}
		if _, err := i.admin(t).RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "joe"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := refused(t, joe, "", "one", ""); err != nil {
		t.Errorf("with edit: %v", err)
	}
}

// kubectl cluster-info shows the services of the cluster at URLs that lead there.
func showsClusterInfo(t *testing.T, i *instance, plain int) {
	c, ctx := i.admin(t), t.Context()
	if _, err := c.CoreV1().Services("kube-system").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "dash", Labels: map[string]string{"kubernetes.io/cluster-service": "true", "kubernetes.io/name": "Dash"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt(plain)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k := i.kubectl(t)
	info := k.run("cluster-info")
	const path = "/api/v1/namespaces/kube-system/services/dash:http/proxy"
	for _, want := range []string{"Kubernetes control plane", "is running at", ":" + strconv.Itoa(i.Port()), "Dash", path} {
		if !strings.Contains(info, want) {
			t.Errorf("cluster-info has no %q:\n%s", want, info)
		}
	}
	k.fail(`no endpoints available for service "dash:http"`, "", "get", "--raw", path+"/")
}
