package main

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestANodeLooksBeforeItStarts: `monopod node` says at once all that keeps an agent from starting on this machine, as `monopod up` does of a whole node.
func TestANodeLooksBeforeItStarts(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := func(name string) string { return filepath.Join(dir, name) }
	_, _, err = command(t.Context(), "node", "--data-dir", in("data"), "--run-dir", in("run"), "--pod-logs-dir", in("logs"), "--container-logs-dir", in("containers"),
		"--agent-address", "127.0.0.1", "--agent-port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port),
		"--kubeconfig", in("kubeconfig"), "--serving-cert", in("cert"), "--serving-key", in("key"), "--client-ca", in("ca"))
	if err == nil {
		t.Fatal("it has started")
	}
	for _, say := range []string{"port agent: ", "is in use by process ", "--agent-port", "file kubeconfig: ", "file serving key: ", "name another with --client-ca"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%q does not say %q", err, say)
		}
	}
	if strings.Contains(err.Error(), "overlay") || strings.Contains(err.Error(), "namespace") {
		t.Errorf("it asks for what only a runtime needs: %v", err)
	}
}
