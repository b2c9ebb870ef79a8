package device

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/contract"
	"monopod.dev/monopod/internal/devices/contract/judge"
)

// deviceTest runs the command with arguments, and returns its error and what it printed.
func deviceTest(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newTestCommand()
	root := &cobra.Command{Use: "device", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(cmd)
	root.SetArgs(append([]string{"test"}, args...))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	printed := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		printed <- string(b)
	}()
	old := os.Stdout
	os.Stdout = w
	err = root.ExecuteContext(t.Context())
	os.Stdout = old
	w.Close()
	text := <-printed
	r.Close()
	return text, err
}

func TestDeviceTestUsage(t *testing.T) {
	for part, args := range map[string][]string{
		"name a command after '--'":      {},
		"is no socket, unix:///PATH":     {"./plugin"},
		"has no path":                    {"unix://"},
		"there are several arguments":    {"unix:///a", "unix:///b"},
		"there are both":                 {"unix:///a", "--", "true"},
		"cannot be run":                  {"--", "/no/such/plugin"},
		"--timeout is -1s":               {"--timeout", "-1s", "--", "true"},
		`--output is "xml": use table`:   {"-o", "xml", "--", "true"},
		"the command \"\" cannot be run": {"--", ""},
	} {
		_, err := deviceTest(t, args...)
		if u := (*cli.UsageError)(nil); !errors.As(err, &u) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want a usage error with %q", args, err, part)
		}
	}
	if _, err := deviceTest(t, "--timeout", "10ms", "unix:///no/such.sock"); err == nil || !strings.Contains(err.Error(), "nobody serves /no/such.sock") {
		t.Errorf("nobody at the socket: %v", err)
	}
}

// TestDeviceTestCommand tries a good and a bad plugin as a user does.
func TestDeviceTestCommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "deviceplugin")
	build := exec.Command("go", "build", "-o", path, "monopod.dev/monopod/examples/deviceplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := deviceTest(t, "--", path, "--devices", "3", "--preferred")
	if err != nil {
		t.Errorf("a good plugin: %v\n%s", err, text)
	}
	for _, part := range []string{"ok    register/call           registers ", "example.com/emulated: 3 devices, 3 healthy, at /var/lib/kubelet/device-plugins/emulator.sock", " 0 FAIL, "} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
	text, err = deviceTest(t, "-o", "json", "--", path, "--bad", "missing-path")
	if u := (*cli.UsageError)(nil); err == nil || errors.As(err, &u) || !strings.Contains(err.Error(), "1 check of the contract failed") {
		t.Errorf("a bad plugin: %v", err)
	}
	var report contract.Report
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&report); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if report.Count(judge.Fail) != 1 || len(report.Output) == 0 || len(report.Command) != 3 {
		t.Errorf("report: %+v", report)
	}
}

// TestDeviceTestSocket tries a plugin that runs.
func TestDeviceTestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dt")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p := emulator.New(emulator.Config{Dir: dir, Resource: "example.com/x", NoRegistration: true, Devices: emulator.Devices(2, 0)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	text, err := deviceTest(t, "unix://"+p.Socket())
	if err != nil || !strings.Contains(text, "skip  register/call           the plugin was started by somebody else: '-- COMMAND' tries this, too") {
		t.Errorf("%v\n%s", err, text)
	}
}
