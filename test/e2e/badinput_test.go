package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestBadInput: one clear line that says what and what to do, an exit code, and nothing half-made.
func TestBadInput(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	busyPort := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port)
	for name, tc := range map[string]struct {
		config string
		args   []string
		code   int
		want   []string
	}{
		"broken config":   {config: "apiVersion: [", code: 2, want: []string{"config.yaml"}},
		"unknown key":     {config: "apiVersion: config.monopod.dev/v1alpha1\nkind: NodeConfiguration\ncolour: red\n", code: 2, want: []string{"config.yaml", "colour"}},
		"other version":   {config: "apiVersion: v2\nkind: NodeConfiguration\n", code: 2, want: []string{`"v2"`, "config.monopod.dev/v1alpha1"}},
		"no config":       {args: []string{"--config", "/no/such/file"}, code: 2, want: []string{"/no/such/file"}},
		"unknown flag":    {args: []string{"--colour", "red"}, code: 2, want: []string{"--colour", "--help"}},
		"unknown word":    {args: []string{"down"}, code: 2, want: []string{`"down"`, "--help"}},
		"bad value":       {args: []string{"--pod-cidr", "10.0.0.0/33"}, code: 2, want: []string{"podCIDR", "10.0.0.0/33"}},
		"bad port":        {args: []string{"--api-port", "70000"}, code: 2, want: []string{"api-port", "70000"}},
		"API port in use": {args: []string{"--api-port", busyPort}, code: 1, want: []string{busyPort, "in use", "--api-port"}},
		"agent's port":    {args: []string{"--agent-address", "127.0.0.1", "--agent-port", busyPort}, code: 1, want: []string{busyPort, "in use", "--agent-port"}},
		"no executor":     {args: []string{"--executor", "/no/such/executor"}, code: 1, want: []string{"/no/such/executor"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := harness.NewNode(t, harness.Options{})
			args := tc.args
			if tc.config != "" {
				path := filepath.Join(n.Dir, "config.yaml")
				if err := os.WriteFile(path, []byte(tc.config), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config", path)
			}
			expectRefusal(t, n.Command(args...), tc.code, tc.want)
			for _, dir := range []string{"data", "run"} {
				if entries, _ := os.ReadDir(filepath.Join(n.Dir, dir)); len(entries) > 0 && tc.code == 2 {
					t.Errorf("%s was begun: %v", dir, entries)
				}
			}
		})
	}
}

// TestNoRoot runs monopod as somebody else.
func TestNoRoot(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	if err := os.Chmod(n.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	// The repository may be where only root can go.
	copied := filepath.Join(n.Dir, "monopod")
	raw, err := os.ReadFile(harness.Bin(t, "monopod"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := n.Command()
	cmd.Path = copied
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	expectRefusal(t, cmd, 1, []string{"root"})
}

// TestMissingOverlay puts the data where the kernel does not allow an overlay's upper directory: on another overlay.
func TestMissingOverlay(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	var dirs []string
	for _, d := range []string{"lower", "upper", "work", "data"} {
		dir := filepath.Join(n.Dir, d)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	if err := syscall.Mount("overlay", dirs[3], "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dirs[0], dirs[1], dirs[2])); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dirs[3], 0); err != nil {
			t.Error(err)
		}
	}()
	expectRefusal(t, n.Command(), 1, []string{"overlay", "--data-dir"})
}

func expectRefusal(t *testing.T, cmd *exec.Cmd, code int, want []string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != code {
		t.Errorf("exit: %v, want code %d", err, code)
	}
	last := strings.TrimSpace(string(out))
	for _, w := range want {
		if !strings.Contains(last, w) {
			t.Errorf("it says %q, which lacks %q", last, w)
		}
	}
	if strings.Contains(last, "goroutine ") {
		t.Errorf("it panicked: %s", last)
	}
}

// TestCheck: the table says everything before anything starts.
func TestCheck(t *testing.T) {
	out, err := exec.Command(harness.Bin(t, "monopod"), "check", "--data-dir", t.TempDir(), "--run-dir", t.TempDir(), "--api-port", "0", "--agent-port", "0").CombinedOutput()
	if err != nil {
		t.Fatalf("monopod check: %v\n%s", err, out)
	}
	for _, want := range []string{"overlay", "nftables", "cgroup", "root", "namespace"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the table has no row for %s:\n%s", want, out)
		}
	}
	for _, line := range strings.Split(string(out), "\n") {
		if len([]rune(line)) > 80 {
			t.Errorf("wider than a terminal: %q", line)
		}
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port)
	out, err = exec.Command(harness.Bin(t, "monopod"), "check", "--data-dir", t.TempDir(), "--run-dir", t.TempDir(), "--api-port", port, "--agent-port", "0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), port) {
		t.Errorf("with port %s in use: %v\n%s", port, err, out)
	}
}
