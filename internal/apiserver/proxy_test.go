package apiserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// tellWhatWasAsked is a server behind a proxy.
func tellWhatWasAsked(w http.ResponseWriter, r *http.Request) {
	who := "nobody"
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %q by %s, authorization %q", r.Method, r.URL.RequestURI(), body, who, r.Header.Get("Authorization"))
}

// hostAddress is an address of this host that other hosts reach: the one towards the default route, where there is any. Other addresses may be those of nodes that
// tests beside this one start and end.
func hostAddress(t *testing.T) netip.Addr {
	t.Helper()
	if c, err := net.Dial("udp4", "203.0.113.1:9"); err == nil { // of RFC 5737; nothing is sent
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr()
		}
	}
	t.Skip("this host has no address but loopback")
	return netip.Addr{}
}

func (i *instance) node(t *testing.T, name, address string, port int32) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}}
	if _, err := i.admin(t).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestProxyToNode(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	i.node(t, "n1", "127.0.0.1", serveAsAgent(t, i, tellWhatWasAsked))
	i.node(t, "liar", "127.0.0.1", int32(i.Port())) // it publishes the API server's port as its agent's
	k := i.kubectl(t)
	const agent = `by kube-apiserver-kubelet-client, authorization ""`
	for _, path := range []string{"/healthz", "/", "/pods/?x=1", ""} {
		want := "GET " + path + ` "" ` + agent
		if path == "" {
			want = `GET / "" ` + agent // by a redirect
		}
		if got := k.run("get", "--raw", "/api/v1/nodes/n1/proxy"+path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	k.fail("ServiceUnavailable", "", "get", "--raw", "/api/v1/nodes/liar/proxy/api/v1/secrets")
	k.fail("address not allowed", "", "get", "--raw", "/api/v1/nodes/n1:9100/proxy/metrics")

	// What a client proves to the API server stays there.
	cfg := anonymous(i)
	cfg.BearerToken = "roots"
	client := i.client(t, cfg).CoreV1().RESTClient()
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		got, err := client.Verb(method).AbsPath("/api/v1/nodes/n1/proxy/a/b").Body([]byte("hello")).DoRaw(t.Context())
		if want := method + ` /a/b "hello" ` + agent; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if err := client.Verb("HEAD").AbsPath("/api/v1/nodes/n1/proxy/").Do(t.Context()).Error(); err != nil {
		t.Errorf("HEAD: %v", err)
	}
	joe := rest.CopyConfig(cfg)
	joe.BearerToken = "joes"
	err := i.client(t, joe).CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/healthz").Do(t.Context()).Error()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot get resource "nodes/proxy"`) {
		t.Errorf("joe: %v", err)
	}
}

func TestProxyToPod(t *testing.T) {
	host := hostAddress(t)
	i := start(t, newConfig(t))
	defer i.end(t)
	l, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(tellWhatWasAsked))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	port := portOf(l.Addr())
	i.node(t, "n1", host.String(), 10250)
	c := i.admin(t)
	for name, onHost := range map[string]bool{"hosts": true, "own": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: onHost, Containers: []corev1.Container{
			{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: int32(port)}}},
		}}}
		pod, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.PodIP, pod.Status.PodIPs = host.String(), []corev1.PodIP{{IP: host.String()}}
		if _, err := c.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	k := i.kubectl(t)
	for id, path := range map[string]string{"hosts": "/a/b?x=1", "http:hosts:" + strconv.Itoa(port): "/", "hosts:" + strconv.Itoa(port): "/c/"} {
		want := "GET " + path + ` "" by nobody, authorization ""`
		if got := k.run("get", "--raw", "/api/v1/namespaces/default/pods/"+id+"/proxy"+path); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	k.fail("address not allowed", "", "get", "--raw", "/api/v1/namespaces/default/pods/own/proxy/")
	k.fail(`pods "none" not found`, "", "get", "--raw", "/api/v1/namespaces/default/pods/none/proxy/")
}
