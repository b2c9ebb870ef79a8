package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// fsckCommand runs `monopod fsck` on the node's directories.
func fsckCommand(t *testing.T, n *harness.Node, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(harness.Bin(t, "monopod"), append([]string{"fsck", "--data-dir", n.Dir + "/data", "--run-dir", n.Dir + "/run"}, args...)...)
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errout.String(), cmd.ProcessState.ExitCode()
}

// TestFsck: a node that runs is refused by name; what a stopped or a killed one leaves with its pods running is whole; what was
// damaged or left is found, and repaired without the pod noticing.
func TestFsck(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	n.Apply(pod("stays", "echo up; exec sleep 3600", `"terminationGracePeriodSeconds": 0,`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")

	if out, errout, code := fsckCommand(t, n); code != 1 || !strings.Contains(errout, fmt.Sprintf("a node (process %d, role ", n.PID())) || out != "" {
		t.Errorf("a node that runs: %d, %q, %q", code, out, errout)
	}
	if _, errout, code := fsckCommand(t, n, "-o", "yaml"); code != 2 {
		t.Errorf("a wrong format: %d, %q", code, errout)
	}
	whole := func(when string) {
		t.Helper()
		for _, args := range [][]string{nil, {"--deep"}, {"--repair"}} {
			out, errout, code := fsckCommand(t, n, args...)
			if code != 0 || errout != "" || !strings.HasSuffix(out, "1 container, 1 sandbox "+map[bool]string{true: "read", false: "looked at"}[len(args) > 0 && args[0] == "--deep"]+": nothing is wrong\n") {
				t.Fatalf("%s, %v: %d, %s%s", when, args, code, out, errout)
			}
		}
	}
	n.Stop()
	whole("stopped")
	n.Start()
	n.Kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
	n.Kill()
	whole("killed")

	// An orphan of each kind that takes no executor to remove.
	orphan := strings.Repeat("0", 64)
	for _, dir := range []string{"data/containers/" + orphan + "/upper", "run/containers/" + orphan, "run/sandboxes/" + orphan, "data/images/overlay/snapshots/999/fs"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, errout, code := fsckCommand(t, n, "-o", "json")
	var report struct {
		Findings []struct {
			Severity, Kind, Object, Problem, Repair string
			Repairable                              bool
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || len(report.Findings) != 4 || !strings.Contains(errout, "--repair repairs 4 of them") {
		t.Fatalf("with orphans: %d, %v, %s%s", code, err, out, errout)
	}
	for _, f := range report.Findings {
		if f.Severity != "leftover" || f.Kind != "directory" || !f.Repairable {
			t.Errorf("found %+v", f)
		}
	}
	if out, errout, code := fsckCommand(t, n, "--repair"); code != 0 || !strings.HasSuffix(out, ": all was repaired\n") {
		t.Errorf("repair: %d, %s%s", code, out, errout)
	}
	whole("repaired")

	// A file of the image is changed, which the running pod's container holds: the name goes, the layer stays.
	files, err := filepath.Glob(filepath.Join(n.Dir, "data/images/overlay/snapshots/*/fs/bin/busybox"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		// It is being executed: give the name to a copy.
		raw, rerr := os.ReadFile(files[0])
		if rerr != nil || os.Remove(files[0]) != nil || os.WriteFile(files[0], append(raw, 'x'), 0o755) != nil {
			t.Fatal(err, rerr)
		}
	} else if _, werr := f.WriteString("x"); werr != nil || f.Close() != nil {
		t.Fatal(werr)
	}
	if out, errout, code := fsckCommand(t, n); code != 0 {
		t.Errorf("it was found without reading the files: %s%s", out, errout)
	}
	out, _, code = fsckCommand(t, n, "--deep")
	if code != 1 || !strings.Contains(out, "damaged  image") || !strings.Contains(out, "damaged  pin") || !strings.Contains(out, "busybox") {
		t.Errorf("a changed file: %d, %s", code, out)
	}
	out, errout, code = fsckCommand(t, n, "--deep", "--repair")
	if code != 1 || !strings.Contains(out, "After the repair:") || !strings.Contains(errout, "could not be repaired") {
		t.Errorf("repair of what is in use: %d, %s%s", code, out, errout)
	}
	n.Start()
	var p corev1.Pod
	getPod(t, n, "stays", &p)
	if s := p.Status.ContainerStatuses[0]; s.RestartCount != 0 {
		t.Errorf("the container was restarted: %+v", s)
	}
	n.Kubectl("delete", "pod", "stays", "--now")
	n.Stop()
	if out, errout, code := fsckCommand(t, n, "--deep"); code != 0 || !strings.Contains(out, "0 images, 0 layers, 0 containers, 0 sandboxes read: nothing is wrong") {
		t.Errorf("when the last user has gone: %d, %s%s", code, out, errout)
	}
}
