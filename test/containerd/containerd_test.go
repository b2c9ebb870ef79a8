package containerd

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/test/harness"
)

// node is an API server, an agent and a containerd.
type node struct {
	*testing.T
	api, agent *harness.Node
	runtime    *daemon
}

// TestAgent: pods on containerd, from their start to their end.
func TestAgent(t *testing.T) {
	// Everything is started by this goroutine, and so in a network namespace of its own, with all bridges and addresses.
	harness.NewNetwork(t)
	n := &node{T: t, runtime: start(t)}
	n.api = harness.StartNode(t, harness.Options{Command: "apiserver"})
	pki := filepath.Join(n.api.Dir, "data", "pki")
	n.agent = harness.NewNode(t, harness.Options{Command: "node", Args: []string{
		"--kubeconfig", n.nodeKubeconfig(pki), "--cri-socket", n.runtime.socket(), "--cgroup-root", n.runtime.cgroup,
		"--serving-cert", filepath.Join(pki, "agent.crt"), "--serving-key", filepath.Join(pki, "agent.key"),
		"--client-ca", filepath.Join(pki, "ca.crt"), "--node-name", n.api.Name, "--container-log-max-size", "64Ki", "--container-log-max-files", "4",
	}})
	n.agent.Start()
	if v := n.api.Kubectl("get", "node", n.api.Name, "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"); !strings.HasPrefix(v, "containerd://1.") {
		t.Errorf("the node's runtime is %q", v)
	}

	n.run("chatty", `n=0; while [ ! -e /stop ]; do n=$((n+1)); printf 'line %05d of a log that somebody has to rotate\n' $n; [ $((n%100)) = 0 ] && usleep 500000; done; printf 'end %05d\n' $n; exec sleep 3600`)
	n.run("crashes", `echo attempt; exit 3`)
	n.run("up", `echo up; exec sleep 3600`)
	n.api.Kubectl("wait", "--for=condition=Ready", "pod/up", "--timeout=60s")
	if log := n.api.Kubectl("logs", "up"); log != "up\n" {
		t.Errorf("log %q", log)
	}
	if out := n.api.Kubectl("exec", "up", "--", "echo", "in containerd"); out != "in containerd\n" {
		t.Errorf("exec printed %q", out)
	}
	if _, err := n.api.TryKubectl("", "exec", "up", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("a command that ends with 7: %v", err)
	}
	if !strings.Contains(n.agent.Log(), "the runtime tells no events; its pods are listed instead until it does") {
		t.Errorf("the agent does not say that there are no events:\n%s", n.agent.Log())
	}

	n.crashes()
	n.asksForUsers()
	n.ends()
	n.goesOn()
	n.rotated()
	n.nothingLeft()
}

// run makes a pod of one container that runs a script.
func (n *node) run(name, script string) {
	n.Helper()
	raw, err := json.Marshal(script)
	if err != nil {
		n.Fatal(err)
	}
	n.api.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"terminationGracePeriodSeconds": 20,
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %s]}]}}`, name, busybox, raw))
}

// status is a pod's.
func (n *node) status(name string) (s v1.PodStatus) {
	n.Helper()
	var pod v1.Pod
	if err := json.Unmarshal([]byte(n.api.Kubectl("get", "pod", name, "-o", "json")), &pod); err != nil {
		n.Fatal(err)
	}
	return pod.Status
}

// crashes: a container that ends is started again, and waits longer and longer for that.
func (n *node) crashes() {
	n.Helper()
	harness.Eventually(n, "the container that crashes waits", func() (bool, string) {
		s := n.status("crashes")
		if len(s.ContainerStatuses) == 0 {
			return false, "no status"
		}
		c := s.ContainerStatuses[0]
		waits := c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
		last := c.LastTerminationState.Terminated
		return waits && c.RestartCount >= 1 && last != nil && last.ExitCode == 3, fmt.Sprintf("%+v", c)
	})
	if log := n.api.Kubectl("logs", "crashes"); log != "attempt\n" {
		n.Errorf("log %q", log)
	}
	n.api.Kubectl("delete", "pod", "crashes", "--timeout=60s")
}

// asksForUsers: a containerd that knows no user namespaces would make a pod that asks for one in the host's, so it is not asked.
func (n *node) asksForUsers() {
	n.Helper()
	n.api.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "users"}, "spec": {"hostUsers": false,
		"containers": [{"name": "c", "image": %q, "command": ["sleep", "3600"]}]}}`, busybox))
	harness.Eventually(n, "an event tells of it", func() (bool, string) {
		out := n.api.Kubectl("get", "events", "--field-selector=reason=FailedCreatePodSandBox,involvedObject.name=users", "-o=jsonpath={.items[*].message}")
		return strings.Contains(out, "can't set `spec.hostUsers: false`, runtime does not support user namespaces"), out
	})
	if s := n.status("users"); s.Phase != v1.PodPending || s.PodIP != "" {
		n.Errorf("the pod is %+v", s)
	}
	n.api.Kubectl("delete", "pod", "users", "--timeout=60s")
}

// ends: a deletion gives containers their time, and ends those that do not use it.
func (n *node) ends() {
	n.Helper()
	n.run("graceful", `trap 'echo goodbye; exit 0' TERM; echo up; while :; do sleep 0.1; done`)
	n.run("deaf", `trap '' TERM; echo up; while :; do sleep 0.1; done`)
	n.api.Kubectl("wait", "--for=condition=Ready", "pod/graceful", "pod/deaf", "--timeout=60s")
	for _, name := range []string{"graceful", "deaf"} { // its trap is set
		harness.Eventually(n, name+" is up", func() (bool, string) {
			log := n.api.Kubectl("logs", name)
			return log == "up\n", log
		})
	}
	follow := n.api.KubectlCommand(n.Context(), "logs", "-f", "graceful")
	out, err := follow.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		n.Fatal(err)
	}
	buf := make([]byte, 3)
	if _, err := io.ReadFull(out, buf); err != nil {
		n.Errorf("%q, %v", buf, err)
	}
	n.api.Kubectl("delete", "pod", "graceful", "--timeout=60s")
	rest, rerr := io.ReadAll(out)
	if err := follow.Wait(); string(buf)+string(rest) != "up\ngoodbye\n" || err != nil || rerr != nil {
		n.Errorf("its last words: %q, %v, %v", rest, rerr, err)
	}
	n.api.Kubectl("delete", "pod", "deaf", "--grace-period=2", "--timeout=60s")
}

// goesOn: containerd crashes and comes back, and what ran runs, and what is to run is run.
func (n *node) goesOn() {
	n.Helper()
	n.runtime.crash()
	n.run("after", `while [ ! -e /end ]; do sleep 0.1; done`)
	n.api.Kubectl("wait", "--for=condition=Ready", "pod/after", "pod/up", "--timeout=60s")
	if c := n.status("up").ContainerStatuses[0]; c.RestartCount != 0 || c.State.Running == nil {
		n.Errorf("what ran before: %+v", c)
	}
	// One that ends now is found by a list, as before.
	n.api.Kubectl("exec", "after", "--", "touch", "/end")
	harness.Eventually(n, "it is started again", func() (bool, string) {
		s := n.status("after")
		return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].RestartCount > 0, fmt.Sprintf("%+v", s)
	})
}

// rotated: the log has been cut into files, of which the older ones are compressed, and no line is lost or cut.
func (n *node) rotated() {
	n.Helper()
	found, err := filepath.Glob(filepath.Join(n.agent.Dir, "pods", "default_chatty_*", "c"))
	if err != nil || len(found) != 1 {
		n.Fatalf("folders %v, %v", found, err)
	}
	harness.Eventually(n, "the log is rotated twice", func() (bool, string) {
		old, err := filepath.Glob(found[0] + "/0.log.*.gz")
		return len(old) > 0, fmt.Sprint(old, err)
	})
	n.api.Kubectl("exec", "chatty", "--", "touch", "/stop")
	var lines int
	harness.Eventually(n, "the last line is printed", func() (bool, string) {
		log := n.api.Kubectl("logs", "chatty", "--tail=1")
		_, err := fmt.Sscanf(log, "end %d", &lines)
		return err == nil, log
	})
	var names []string
	var text string
	harness.Eventually(n, "nothing is rotated while the files are read", func() (bool, string) {
		var err error
		names, text, err = logs(found[0])
		return err == nil, fmt.Sprint(err)
	})
	got := strings.Split(strings.TrimSpace(text), "\n")
	got = got[:len(got)-1]
	// On a slow machine there may have been so many rotations that the first files are gone.
	if len(names) < 3 || len(names) > 4 || len(got) != lines && len(names) < 4 {
		n.Errorf("%d of %d lines are in %v", len(got), lines, names)
	}
	for i, line := range got {
		if want := fmt.Sprintf(" stdout F line %05d of a log that somebody has to rotate", lines-len(got)+1+i); !strings.HasSuffix(line, want) {
			n.Fatalf("line %d of %d is %q, want %q; files %v", i, len(got), line, want, names)
		}
	}
	n.Logf("%d lines are in %v", len(got), names)
}

// logs is what all files of a log hold together, from the oldest to the present one, which sorts first by its name. It is an error where they change meanwhile.
func logs(dir string) (files []string, text string, err error) {
	files, err = list(dir)
	if err != nil || len(files) == 0 || files[0] != "0.log" {
		return files, "", fmt.Errorf("files %v, %w", files, err)
	}
	for _, name := range append(slices.Clone(files[1:]), files[0]) {
		raw, err := read(filepath.Join(dir, name))
		if err != nil {
			return files, "", err
		}
		text += string(raw)
	}
	if after, err := list(dir); err != nil || !slices.Equal(after, files) {
		return files, "", fmt.Errorf("files %v, and then %v, %w", files, after, err)
	}
	return files, text, nil
}

func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// read reads a file, which may be compressed.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(f)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// nothingLeft deletes the pods, and looks what they have left.
func (n *node) nothingLeft() {
	n.Helper()
	n.api.Kubectl("delete", "pod", "--all", "--grace-period=1", "--timeout=60s")
	harness.Eventually(n, "containerd has nothing any more", func() (bool, string) {
		held, err := n.runtime.held()
		return err == nil && len(held) == 0, fmt.Sprint(held, err)
	})
	if left, _ := filepath.Glob(filepath.Join(n.agent.Dir, "pods", "*")); len(left) > 0 {
		n.Errorf("logs are left: %v", left)
	}
}

// nodeKubeconfig makes the agent's kubeconfig out of the administrator's and the node's certificate.
func (n *node) nodeKubeconfig(pki string) string {
	n.Helper()
	cfg, err := clientcmd.LoadFromFile(n.api.Kubeconfig())
	if err != nil {
		n.Fatal(err)
	}
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(pki, "node.crt"), ClientKey: filepath.Join(pki, "node.key")}
	}
	path := filepath.Join(n.TempDir(), "node.kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		n.Fatal(err)
	}
	return path
}
