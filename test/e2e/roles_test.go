package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
