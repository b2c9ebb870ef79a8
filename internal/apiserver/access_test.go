package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/internal/apiserver/pki"
)

// startWithTokens starts a server that knows the token "joes" of joe, who may do nothing, and "roots" of an administrator.
func startWithTokens(t *testing.T) *instance {
	t.Helper()
	dir := directory(t)
	file := "joes,joe,7,\"dev,ops\"\nroots,root,0,system:masters\n"
	if err := os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, configIn(dir))
}

// anonymous is a client configuration without credentials.
func anonymous(i *instance) *rest.Config { return rest.AnonymousClientConfig(i.AdminConfig()) }

func withToken(i *instance, token string) *rest.Config {
	cfg := anonymous(i)
	cfg.BearerToken = token
	return cfg
}

func TestAccess(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	t.Run("who is nobody", func(t *testing.T) { nobodysAccess(t, i) })
	t.Run("a user of no group", func(t *testing.T) {
		k := kubectl{t: t, kubeconfig: tokenKubeconfig(t, i, "joes"), home: t.TempDir()}
		k.fail(`User "joe" cannot list resource "pods"`, "", "get", "pods")
		k.fail(`User "joe" cannot create resource "configmaps"`, "", "create", "configmap", "x")
		k.fail(`User "joe" cannot get path "/metrics"`, "", "get", "--raw", "/metrics")
		k.run("api-resources")
		k.run("version")
		if out := k.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"); out != `joe ["dev","ops","system:authenticated"]` {
			t.Errorf("whoami: %s", out)
		}
		if out, _, ok := k.try("", "auth", "can-i", "get", "pods"); ok || !strings.HasPrefix(out, "no") {
			t.Errorf("can-i get pods: %q, success=%v", out, ok)
		}
	})
	t.Run("an administrator by token", func(t *testing.T) {
		if _, err := i.client(t, withToken(i, "roots")).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("an agent", func(t *testing.T) { agentAccess(t, i.client(t, i.NodeConfig("n1"))) })
	t.Run("another node's agent", func(t *testing.T) {
		other := i.client(t, i.NodeConfig("n2"))
		_, err := other.CoreV1().Nodes().PatchStatus(t.Context(), "n1", []byte(`{"status":{"phase":"Running"}}`))
		if !apierrors.IsForbidden(err) {
			t.Errorf("the agent of n2 writes the status of n1: %v", err)
		}
	})
	t.Run("the kubeconfig is the owner's", func(t *testing.T) {
		info, err := os.Stat(i.cfg.Kubeconfig)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
		}
	})
}

// nobodysAccess: health and version are told to who shows no credentials. All else, and who shows wrong ones, gets 401.
func nobodysAccess(t *testing.T, i *instance) {
	public := []string{"/healthz", "/livez", "/readyz", "/version"}
	closed := []string{"/", "/api", "/api/v1/namespaces", "/apis", "/healthz/etcd", "/livez/ping", "/readyz/startup", "/version/", "/metrics", "/openapi/v3", "/nonsense"}
	for name, cfg := range map[string]*rest.Config{"anonymous": anonymous(i), "a wrong token": withToken(i, "guess"), "a stranger's certificate": stranger(t, i)} {
		transport, err := rest.TransportFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(closed, public...) {
			resp, err := (&http.Client{Transport: transport}).Get(cfg.Host + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if name == "anonymous" && slices.Contains(public, path) {
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s, %s: %d %s", name, path, resp.StatusCode, body)
				}
				continue
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); resp.StatusCode != http.StatusUnauthorized || err != nil || status.Reason != metav1.StatusReasonUnauthorized {
				t.Errorf("%s, %s: %d %s", name, path, resp.StatusCode, body)
			}
		}
	}
}

// stranger has a certificate of another authority, for a name that would be an administrator's here.
func stranger(t *testing.T, i *instance) *rest.Config {
	t.Helper()
	other, _, err := pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), NodeName: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := anonymous(i)
	cfg.CertData, cfg.KeyData = other.Admin.Cert, other.Admin.Key
	return cfg
}

func tokenKubeconfig(t *testing.T, i *instance, token string) string {
	t.Helper()
	admin := i.AdminConfig()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// agentAccess does what the agent of n1 does, and some things that it may not.
func agentAccess(t *testing.T, c kubernetes.Interface) {
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := c.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Errorf("register: %v", err)
	}
	if _, err := c.CoreV1().Nodes().PatchStatus(ctx, "n1", []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`)); err != nil {
		t.Errorf("patch its status: %v", err)
	}
	holder := "n1"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	if _, err := c.CoordinationV1().Leases("kube-node-lease").Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		t.Errorf("create its lease: %v", err)
	}
	if _, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}); err != nil {
		t.Errorf("list its pods: %v", err)
	}
	if _, err := c.CoreV1().Secrets("default").Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("read a secret that no pod of it refers to: %v, want Forbidden", err)
	}

	review, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "joes"}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Username != "joe" || !slices.Contains(review.Status.User.Groups, "system:authenticated") || review.Spec.Token != "" {
		t.Errorf("review of joe's token: %+v, %v", review, err)
	}
	review, err = c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "guess"}}, metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated || review.Status.Error == "" {
		t.Errorf("review of a wrong token: %+v, %v", review, err)
	}
	for who, want := range map[string]bool{"system:masters": true, "dev": false} {
		access, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "x", Groups: []string{who},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes", Subresource: "proxy", Name: "n1"},
		}}, metav1.CreateOptions{})
		if err != nil || access.Status.Allowed != want {
			t.Errorf("review of what %s may: %+v, %v; want allowed=%v", who, access, err, want)
		}
	}
	if _, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("review of nothing: %v, want Invalid", err)
	}

	if err := c.CoreV1().Nodes().Delete(ctx, "n9", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete another node: %v, want Forbidden", err)
	}
	if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create a configmap: %v, want Forbidden", err)
	}
}

// The API server finds the agent of a pod's node by what the Node object says, and each proves to the other who it is.
func TestAgentConnection(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	var caller string
	port := serveAsAgent(t, i, func(w http.ResponseWriter, r *http.Request) {
		caller = r.TLS.PeerCertificates[0].Subject.CommonName
		_, _ = io.WriteString(w, "path "+r.URL.Path+"\n")
	})
	c := i.admin(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "unresolvable.invalid"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := func(node string) {
		t.Helper()
		err := c.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	bind("n1")
	k := i.kubectl(t)
	if got := k.run("logs", "web"); got != "path /containerLogs/default/web/c\n" {
		t.Errorf("logs: %q", got)
	}
	if caller != "kube-apiserver-kubelet-client" {
		t.Errorf("the agent was called by %q", caller)
	}
	k.run("delete", "node", "n1")
	k.fail(`nodes "n1" not found`, "", "logs", "web")
}

// serveAsAgent serves HTTPS with the agent's certificate, to clients that the authority vouches for.
func serveAsAgent(t *testing.T, i *instance, handler http.HandlerFunc) (port int32) {
	t.Helper()
	certFile, keyFile, caFile := i.AgentServingFiles()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return int32(portOf(l.Addr()))
}
