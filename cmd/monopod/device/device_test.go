package device

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/clitest"
)

const widgets, gpus = "example.com/widget", "vendor.example/gpu"

var (
	grantTimes = regexp.MustCompile(`grantedAt: .*`)
	gaps       = regexp.MustCompile(` {2,}`)
)

// busyRig has a bit of everything.
func busyRig(t *testing.T) *clitest.AdminRig {
	t.Helper()
	r := clitest.NewAdminRig(t, protocol.Status{})
	if err := os.Remove(r.Path("w2")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "cdi", "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs := clitest.NewLines(), clitest.NewLines()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- clitest.CommandInto(ctx, clitest.Root(Command()), out, errs, "device", "--admin-socket", r.Socket, "ls", "-w", "-o", "json")
	}()
	out.Await(t, "synced")
	r.Spec("bits.json", "example.com/bit", "GPU-half")
	r.Admit("train-0", clitest.Asks("main", alloc.Main, gpus, 1))
	r.Admit("build", clitest.Asks("fetch", alloc.Init, widgets, 1), clitest.Asks("main", alloc.Main, widgets, 1))
	out.Await(t, `"resource":"example.com/bit"`)
	out.Await(t, `"name":"w2","health":"Unhealthy"`)
	out.Await(t, "bad.json")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDeviceList(t *testing.T) {
	r := busyRig(t)
	for _, format := range []string{"table", "wide", "yaml"} {
		out, errs, err := clitest.Command(t.Context(), clitest.Root(Command()), "device", "ls", "--admin-socket", r.Socket, "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		text := r.Neutral(out.String())
		if format == "table" {
			for _, line := range strings.Split(text, "\n") {
				if len(line) > 100 {
					t.Errorf("%d columns: %q", len(line), line)
				}
			}
			if got := r.Neutral(errs.String()); !strings.HasPrefix(got, "problem: DIR/cdi/bad.json: ") || strings.Count(got, "\n") != 1 {
				t.Errorf("problems: %q", got)
			}
		}
		if format == "wide" {
			text = gaps.ReplaceAllString(text, "  ") // the columns are as wide as the directory's name
		}
		if format == "yaml" {
			text = grantTimes.ReplaceAllString(text, "grantedAt: TIME")
		}
		clitest.Golden(t, "device-ls-"+format, text)
	}
	out, errs, err := clitest.Command(t.Context(), clitest.Root(Command()), "device", "list", "--admin-socket", r.Socket, "-o", "json", widgets)
	var l report.List
	if err != nil || json.Unmarshal([]byte(out.String()), &l) != nil || len(l.Devices) != 3 || len(l.Problems) != 1 || errs.String() != "" {
		t.Errorf("%v, %s, %s", err, out, errs)
	}
}

func TestDeviceListOfNothing(t *testing.T) {
	r := clitest.NewAdminRig(t, protocol.Status{})
	if _, _, err := clitest.Command(t.Context(), clitest.Root(Command()), "device", "ls", "--admin-socket", r.Socket, "example.com/none"); err == nil || err.Error() != "no device of example.com/none is known here" {
		t.Error(err)
	}
	absent := r.Path("absent.sock")
	for _, args := range [][]string{{"device", "ls"}, {"device", "ls", "--watch"}} {
		_, _, err := clitest.Command(t.Context(), clitest.Root(Command()), append(args, "--admin-socket", absent)...)
		if u := (*cli.UsageError)(nil); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &u) || !strings.Contains(err.Error(), "no node runs at "+absent+": start 'monopod up', or name the socket") {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"device", "ls", "a", "b"}, {"device", "ls", "-o", "xml"}, {"device", "ls", "--colour"}} {
		_, _, err := clitest.Command(t.Context(), clitest.Root(Command()), append(args, "--admin-socket", r.Socket)...)
		if u := (*cli.UsageError)(nil); !errors.As(err, &u) {
			t.Errorf("%q is taken: %v", args, err)
		}
	}
}

// A watch prints the table, and then a line for each change; Ctrl-C is no failure, the node's end is one.
func TestDeviceWatch(t *testing.T) {
	r := clitest.NewAdminRig(t, protocol.Status{})
	out, errs := clitest.NewLines(), clitest.NewLines()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- clitest.CommandInto(ctx, clitest.Root(Command()), out, errs, "device", "ls", "--watch", "--admin-socket", r.Socket, widgets)
	}()
	out.Await(t, "w2")
	r.Admit("train", clitest.Asks("main", alloc.Main, widgets, 1))
	out.Await(t, "default/train/main")
	if err := os.Remove(r.Path("w1")); err != nil {
		t.Fatal(err)
	}
	out.Await(t, "Unhealthy")
	r.Spec("widget.json", widgets, "w0", "w1")
	out.Await(t, "removed")
	if err := os.WriteFile(filepath.Join(r.Dir, "cdi", "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	errs.Await(t, "problem: ")
	if err := os.Remove(filepath.Join(r.Dir, "cdi", "bad.json")); err != nil {
		t.Fatal(err)
	}
	errs.Await(t, "solved: ")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended by Ctrl-C: %v", err)
	}
	clitest.Golden(t, "device-ls-watch", r.Neutral(out.String()))

	go func() {
		done <- clitest.CommandInto(t.Context(), clitest.Root(Command()), out, errs, "device", "ls", "--watch", "-o", "yaml", "--admin-socket", r.Socket, widgets)
	}()
	out.Await(t, "type: synced")
	r.Stop()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "has ended the watch") {
		t.Errorf("ended by the node: %v", err)
	}
}

// Free shares of a device are one line, and all lines with -o wide.
func TestSharesInTheTable(t *testing.T) {
	var all []report.Device
	for _, name := range []string{"kvm", "kvm#2", "kvm#3", "kvm#4"} {
		all = append(all, report.Device{Resource: "v.com/host", Name: name, ShareOf: "kvm", Health: report.Healthy, Source: "/etc/cdi/kvm.yaml"})
	}
	all[1].Holders = []report.Holder{{Namespace: "default", Pod: "vm", Container: "main"}}
	clitest.Golden(t, "device-ls-shares", deviceTable(all, false)+"\n"+deviceTable(all, true))
}

// The usual widths of all columns together fit a terminal.
func TestDeviceTableWidth(t *testing.T) {
	table := deviceTable([]report.Device{{Resource: "nvidia.com/gpu", Name: "GPU-5c6e2c1a-1f6b-44a0-8f1d-0a7f3e21b9c4", Health: report.Unhealthy, NUMA: []int{0, 1}, Source: "/var/run/cdi/nvidia.yaml",
		Holders: []report.Holder{{Namespace: "default", Pod: "train-0", Container: "main"}, {Namespace: "default", Pod: "train-0", Container: "fetch"}}}}, false)
	clitest.Golden(t, "device-ls-wide-cells", table)
	for _, line := range strings.Split(table, "\n") {
		if len(line) > 100 {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	if got := deviceRow(report.Device{Resource: "smarter-devices/fuse", Name: "\x00", Source: "smarter.sock"}, true)[1]; got != `"\x00"` {
		t.Errorf("a control character is shown as %q", got)
	}
	for s, want := range map[string]string{"short": "short", strings.Repeat("x", 24): strings.Repeat("x", 24), "0123456789012345678901234": "01234567890123...8901234"} {
		if got := cli.Shorten(s, 24); got != want {
			t.Errorf("%q is shortened to %q", s, got)
		}
	}
}
