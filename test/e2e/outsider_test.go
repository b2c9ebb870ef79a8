package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

func TestMain(m *testing.M) {
	harness.ServeOutsider()
	if os.Getenv(inClusterEnv) != "" {
		if err := beInCluster(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(echoEnv) != "" {
		if err := beEcho(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNobodyPassesFromOutside: of all that a whole node makes, no other user of the host reaches anything by a path.
func TestNobodyPassesFromOutside(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	for dir := n.Dir; dir != "/" && dir != "/tmp"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // as /run and /var/lib are
			t.Fatal(err)
		}
	}
	n.LoadImage(archive(t))
	n.Apply(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volumes"}, "spec": {
		"volumes": [{"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "c", "configMap": {"name": "c"}}, {"name": "s", "secret": {"secretName": "s"}}],
		"containers": [{"name": "c", "image": "` + busybox + `", "command": ["sh", "-c", "cp /bin/busybox /evil; chmod 4755 /evil; for d in /e /m /dev/shm; do cp -p /evil $d/evil; chmod 4777 $d/evil $d; done; chmod 0777 /; echo up; touch /e/done; exec sleep 3600"],
			"volumeMounts": [{"name": "e", "mountPath": "/e"}, {"name": "m", "mountPath": "/m"}, {"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}]}]}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/volumes", "--timeout=60s")
	harness.Eventually(t, "the container has made its files", func() (bool, string) {
		out, err := n.TryKubectl("", "exec", "volumes", "--", "ls", "/e/done")
		return err == nil, out
	})
	run, data := filepath.Join(n.Dir, "run"), filepath.Join(n.Dir, "data")
	logs := filepath.Join(n.Dir, "pods")
	reached, tried := harness.ReachedByOutsider(t, run, data, logs, n.Kubeconfig())
	t.Logf("%d paths were tried", tried)
	if tried < 100 {
		t.Errorf("only %d paths were tried", tried)
	}
	// The roots of pods' user namespaces pass these, and see no names in them.
	for _, dir := range []string{run, filepath.Join(run, "containers")} {
		if reached[dir] != "pass or execute" {
			t.Errorf("%s: %q", dir, reached[dir])
		}
		delete(reached, dir)
	}
	// Which pods have logs is no secret, as with kubelets; what is in them is.
	maps.DeleteFunc(reached, func(path, how string) bool {
		info, err := os.Stat(path)
		return strings.HasPrefix(path, logs) && err == nil && info.IsDir() && how == "read, pass or execute"
	})
	for _, path := range slices.Sorted(maps.Keys(reached)) {
		t.Errorf("user %d can %s %s", harness.Outsider, reached[path], path)
	}
}
