package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/google/nftables"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// TestRolesApart joins three processes, an API server, a runtime and an agent, at their public seams: what `monopod up` does
// in one.
func TestRolesApart(t *testing.T) {
	api := harness.StartNode(t, harness.Options{Command: "apiserver"})
	rt := harness.StartNode(t, harness.Options{Command: "runtime"})
	rt.LoadImage(harness.Archive(t, busybox, images.Busybox))

	pki := filepath.Join(api.Dir, "data", "pki")
	agent := harness.NewNode(t, harness.Options{Command: "node", Args: []string{
		"--kubeconfig", nodeKubeconfig(t, api, pki), "--cri-socket", rt.CRISocket(), "--cgroup-root", rt.CgroupRoot,
		"--serving-cert", filepath.Join(pki, "agent.crt"), "--serving-key", filepath.Join(pki, "agent.key"),
		"--client-ca", filepath.Join(pki, "ca.crt"), "--node-name", api.Name,
	}})
	agent.Start()
	// With a grace of 0 the API forgets the pod at once, and the agent would be stopped before it has cleaned up.
	api.Apply(pod("apart", "echo up; exec sleep 3600", `"terminationGracePeriodSeconds": 1,`))
	api.Kubectl("wait", "--for=condition=Ready", "pod/apart", "--timeout=60s")
	if log := api.Kubectl("logs", "apart"); log != "up\n" {
		t.Errorf("log %q", log)
	}
	if out := api.Kubectl("exec", "apart", "--", "echo", "through three processes"); out != "through three processes\n" {
		t.Errorf("exec printed %q", out)
	}
	api.Kubectl("delete", "pod", "apart", "--timeout=60s")
}

// TestPoliciesApart: a runtime of its own enforces the network policies of an API server that somebody else runs, with the rights of the node and those that it is
// given for that.
func TestPoliciesApart(t *testing.T) {
	api := harness.StartNode(t, harness.Options{Command: "apiserver"})
	api.Apply(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "monopod-network-policy"}, "rules": [
		{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
		{"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]}]}`)
	api.Kubectl("create", "clusterrolebinding", "monopod-network-policy", "--clusterrole=monopod-network-policy", "--group=system:nodes")
	pki := filepath.Join(api.Dir, "data", "pki")
	kubeconfig := nodeKubeconfig(t, api, pki)
	rt := harness.StartNode(t, harness.Options{Command: "runtime", Args: []string{"--kubeconfig", kubeconfig}})
	rt.LoadImage(harness.Archive(t, busybox, images.Busybox))
	agent := harness.NewNode(t, harness.Options{Command: "node", Args: []string{
		"--kubeconfig", kubeconfig, "--cri-socket", rt.CRISocket(), "--cgroup-root", rt.CgroupRoot,
		"--serving-cert", filepath.Join(pki, "agent.crt"), "--serving-key", filepath.Join(pki, "agent.key"),
		"--client-ca", filepath.Join(pki, "ca.crt"), "--node-name", api.Name, "--service-proxy", "enabled", "--bridge", rt.Bridge,
	}})
	// The runtime's reset removes the tables of the agent's proxy as well, but it comes after the agent's own look at the host.
	t.Cleanup(func() {
		agent.Stop()
		conn, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		tables, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if table.Name == rt.Bridge+"-services" {
				conn.DelTable(table)
			}
		}
		if err := conn.Flush(); err != nil {
			t.Error(err)
		}
	})
	api.Kubectl("create", "clusterrolebinding", "monopod-proxy", "--clusterrole=system:node-proxier", "--group=system:nodes")
	agent.Start()
	api.Kubectl("create", "namespace", "shop")
	var all []*talker
	for _, name := range []string{"web", "friend", "stranger"} {
		p := talkOn(t, api, rt, "shop", name, fmt.Sprintf(`"app": %q`, name), "")
		p.serve(80)
		all = append(all, p)
	}
	web, friend, stranger := all[0], all[1], all[2]
	stranger.soon(web, 80, true)
	api.Apply(policyJSON("web", `{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]}`))
	stranger.soon(web, 80, false)
	friend.soon(web, 80, true)
	// The agent leads packets for services, for which the policies hold as well.
	api.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080, "targetPort": 80}]}}`)
	vip := netip.AddrPortFrom(netip.MustParseAddr(api.Kubectl("-n", "shop", "get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}")), 8080)
	harness.Eventually(t, "a friend reaches the service", func() (bool, string) { return friend.dial(vip, 300*time.Millisecond*harness.SlowFactor()), "" })
	if stranger.dial(vip, 300*time.Millisecond*harness.SlowFactor()) {
		t.Error("a stranger reaches the service")
	}
	// It is enforced whatever becomes of the runtime.
	rt.Kill()
	stranger.soon(web, 80, false)
	friend.soon(web, 80, true)
	rt.Start()
	stranger.soon(web, 80, false)
	friend.soon(web, 80, true)
	api.Kubectl("-n", "shop", "delete", "netpol", "web")
	stranger.soon(web, 80, true)
	for _, p := range all {
		api.Kubectl("-n", "shop", "delete", "pod", p.pod, "--grace-period=1", "--timeout=60s") // as in TestRolesApart
	}
}

// nodeKubeconfig makes the agent's kubeconfig out of the administrator's and the node's certificate.
func nodeKubeconfig(t *testing.T, api *harness.Node, pki string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(pki, "node.crt"), ClientKey: filepath.Join(pki, "node.key")}
	}
	path := filepath.Join(t.TempDir(), "node.kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the kubeconfig: %v, %v", st.Mode(), err)
	}
	return path
}
