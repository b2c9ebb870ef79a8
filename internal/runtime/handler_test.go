package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/test/harness"
)

var runc = sync.OnceValues(func() (string, error) { return harness.BuildRunc(filepath.Dir(busyboxArchive)) })

// withRunc is a node whose handler "runc" is runc, and "mute" a program that is no OCI runtime.
func withRunc(t *testing.T) *node {
	t.Helper()
	path, err := runc()
	if err != nil {
		t.Fatal(err)
	}
	n := prepareNode(t)
	mute := filepath.Join(n.dir, "mute")
	n.check(os.WriteFile(mute, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	n.change = func(c *runtime.Config) {
		c.Handlers = []runtime.Handler{{Name: "runc", Path: path, Root: filepath.Join(n.dir, "run", "oci")}, {Name: "mute", Path: mute, Root: n.dir + "/mute-root"}}
	}
	return startNode(n)
}

func (n *node) runWith(name, handler string) (string, error) {
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(name), RuntimeHandler: handler})
	return resp.GetPodSandboxId(), err
}

func TestHandlers(t *testing.T) {
	n := withRunc(t)
	resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
	n.check(err)
	var names []string
	features := map[string]*cri.RuntimeHandlerFeatures{}
	for _, h := range resp.GetRuntimeHandlers() {
		names = append(names, h.GetName())
		features[h.GetName()] = h.GetFeatures()
	}
	if !slices.Equal(names, []string{"", "native", "mute", "runc"}) {
		t.Errorf("handlers %q", names)
	}
	if f := features["mute"]; f.GetRecursiveReadOnlyMounts() || f.GetUserNamespaces() {
		t.Errorf("a program that does not say what it can: %v", f)
	}
	if features["runc"].GetRecursiveReadOnlyMounts() != features[""].GetRecursiveReadOnlyMounts() {
		t.Errorf("runc %v, native %v", features["runc"], features[""])
	}
	_, err = n.runWith("p", "kata")
	wantCode(t, err, codes.InvalidArgument, `runtime_handler "kata"`, "native, mute, runc")
}

// TestHandlerByDefault: a sandbox tells the runtime handler by the name that it was asked for, and the default one has the empty name.
func TestHandlerByDefault(t *testing.T) {
	n := newNode(t)
	asked := map[string]string{}
	for name, handler := range map[string]string{"default": "", "named": "native"} {
		id, err := n.runWith(name, handler)
		n.check(err)
		asked[id] = handler
	}
	look := func() {
		list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
		n.check(err)
		for _, item := range list.GetItems() {
			if got := item.GetRuntimeHandler(); got != asked[item.GetId()] {
				t.Errorf("asked for %q, listed %q", asked[item.GetId()], got)
			}
		}
		for id, want := range asked {
			resp, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
			n.check(err)
			if got := resp.GetStatus().GetRuntimeHandler(); got != want {
				t.Errorf("asked for %q, told %q", want, got)
			}
			if !strings.Contains(resp.GetInfo()["info"], `"runtimeHandler":"native"`) {
				t.Errorf("asked for %q, the handler in use is not told: %s", want, resp.GetInfo()["info"])
			}
		}
	}
	look()
	n.restart()
	look()
}

// A pod of an OCI runtime is used as any other.
func TestPodOfOCIRuntime(t *testing.T) {
	n := withRunc(t)
	sandbox, err := n.runWith("p", "runc")
	n.check(err)
	if got := n.sandboxStatus(sandbox).GetRuntimeHandler(); got != "runc" {
		t.Errorf("runtime handler %q", got)
	}
	id := n.launch(sandbox, shell("c", "echo hello; "+sleeper))
	state := filepath.Join(n.dir, "run", "oci", id, "state.json")
	if _, err := os.Stat(state); err != nil {
		t.Errorf("the container is not runc's: %v", err)
	}
	if got := n.exec(id, "sh", "-c", "hostname"); got != "p" {
		t.Errorf("hostname %q", got)
	}
	n.restart()
	n.check(n.tryStop(id, 10))
	st := n.wait(id)
	if lines := n.logLines(st.GetLogPath()); st.GetExitCode() != 0 || len(lines) != 1 || !strings.HasSuffix(lines[0], " hello") {
		t.Errorf("exit code %d, log %q", st.GetExitCode(), lines)
	}
	n.remove(id)
	if _, err := os.Stat(state); err == nil {
		t.Error("runc has not forgotten the container")
	}
	n.removeSandbox(sandbox)
}

// A handler that is no longer configured is not replaced by another one.
func TestHandlerIsGone(t *testing.T) {
	n := withRunc(t)
	sandbox, err := n.runWith("p", "runc")
	n.check(err)
	n.change = nil
	n.restart()
	_, err = n.tryCreate(sandbox, shell("c", sleeper))
	wantCode(t, err, codes.FailedPrecondition, `"runc"`, "runtime.handlers")
	n.removeSandbox(sandbox)
}

// Logs are rotated by their writer where that is configured.
func TestLogRotation(t *testing.T) {
	n := prepareNode(t)
	n.change = func(c *runtime.Config) { c.LogRotation = life.LogRotation{MaxBytes: 64 << 10, MaxFiles: 3} }
	startNode(n)
	id := n.launch(n.run("p"), shell("c", "seq 20000"))
	log := n.wait(id).GetLogPath()
	files, err := filepath.Glob(log + "*")
	n.check(err)
	if lines := n.logLines(log); len(files) != 3 || !strings.HasSuffix(lines[len(lines)-1], " 20000") {
		t.Errorf("files %q; the last line is %q", files, lines[len(lines)-1])
	}
}
