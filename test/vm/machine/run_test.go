package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod.dev/monopod/test/vm/guest"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "monopod-vm-init-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	initDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var initDir string

// initProgram builds the first process of all machines here, once.
var initProgram = sync.OnceValues(func() (string, error) { return BuildInit(context.Background(), initDir, NativeArch) })

// shell is a machine that runs a shell command; what it prints comes into the buffer.
func shell(t *testing.T, command string) (Config, *bytes.Buffer) {
	t.Helper()
	init, err := initProgram()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	return Config{
		Cache: DefaultCache(), Init: init, Output: &output, Log: t.Logf,
		Job: guest.Job{Args: []string{"sh", "-c", command}},
	}, &output
}

// leftovers fails the test when a machine, or what it was made of, is still there.
func leftovers(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Cleanup(func() {
		goleak.VerifyNone(t, ignore)
		if left, _ := filepath.Glob(tmp + "/*"); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, c := range cmdlines {
			if raw, err := os.ReadFile(c); err == nil && bytes.Contains(raw, []byte(tmp)) && strings.Contains(string(raw), "qemu") {
				t.Errorf("still running: %s", c)
			}
		}
	})
}

func TestTheMachineIsWhatANodeExpects(t *testing.T) {
	leftovers(t)
	cfg, out := shell(t, `set -e
		stat -f -c %t /sys/fs/cgroup
		for c in cpu memory pids cpuset io; do grep -qw $c /sys/fs/cgroup/cgroup.controllers; done
		ip link show lo | grep -q ,UP
		hostname; pwd; echo $EXTRA
		cat file; ls -l /opt/tool | cut -c1-10
		test -c /dev/ptmx -a -d /dev/pts -a -h /dev/fd
		( (sleep 0.1; echo orphan > /tmp/orphan) & )
		sleep 3; ps -o stat | grep -c Z || true
		exit 42`)
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "file"), []byte("content\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Files = map[string]string{"/payload": files, "/opt/tool": filepath.Join(files, "file")}
	cfg.Job.Env = []string{"EXTRA=extra"}
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if want := "63677270\nmonopod-vm\n/payload\nextra\ncontent\n-rwxr-xr-x\n0\n"; out.String() != want || res.Code != 42 {
		t.Errorf("exit code %d, output\n%s\nwant\n%s", res.Code, out, want)
	}
	// What the machine takes for three seconds are three seconds, whatever runs beside it.
	if res.Guest < 3*time.Second || res.Guest > 2*res.Job || res.Job > 2*res.Guest {
		t.Errorf("the job took %s, and %s by the machine's clock", res.Job, res.Guest)
	}
	t.Logf("%+v", res)
}

func TestSystemdIsTheFirstProcess(t *testing.T) {
	leftovers(t)
	cfg, out := shell(t, `set -e
		cat /proc/1/comm /proc/self/cgroup
		stat -f -c %t /sys/fs/cgroup
		test -d /run/systemd/system -a -S /run/systemd/private
		systemctl show --property=ActiveState default.target
		busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager GetUnit s job.service
		systemctl --failed --quiet
		ip link show lo | grep -q ,UP
		test -e /dev/mqueue -a -c /dev/ptmx
		hostname; pwd; echo $EXTRA
		exit 42`)
	cfg.Systemd = true
	cfg.Job.Env = []string{"EXTRA=extra"}
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if want := "systemd\n0::/system.slice/job.service\n63677270\nActiveState=active\n" +
		"o \"/org/freedesktop/systemd1/unit/job_2eservice\"\nmonopod-vm\n/payload\nextra\n"; out.String() != want || res.Code != 42 {
		t.Errorf("exit code %d, output\n%s\nwant\n%s", res.Code, out, want)
	}
	t.Logf("%+v", res)
}

func TestAllOutputArrives(t *testing.T) {
	leftovers(t)
	cfg, out := shell(t, "seq 1000000; kill -9 $$")
	res, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1000000 || !strings.HasSuffix(out.String(), "\n1000000\n") || res.Code != 128+9 {
		t.Errorf("exit code %d, %d lines, the last %q", res.Code, n, out.String()[max(0, out.Len()-20):])
	}
}

// A machine may boot as often as it is said, on the disk that the boot before has left: what was synced is there, what was in memory is not.
func TestARebootKeepsTheDisk(t *testing.T) {
	leftovers(t)
	cfg, out := shell(t, `set -e
		test ! -e /run/here
		touch /run/here
		[ ! -e /root/synced ] || { echo again; cat /root/synced; }
		echo content > /root/synced
		sync
		echo cut
		echo b > /proc/sysrq-trigger
		sleep 1000`)
	cfg.Boots = 2
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the machine booted more than 2 times") {
		t.Errorf("a third boot: %v", err)
	}
	if !strings.HasPrefix(out.String(), "cut\nagain\ncontent\ncut\n") {
		t.Errorf("output\n%s", out)
	}
}

// writer calls itself for everything that is written to it.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	leftovers(t)
	t.Run("no such command", func(t *testing.T) {
		cfg, _ := shell(t, "")
		cfg.Job.Args = []string{"nothing-of-that-name"}
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `init: exec: "nothing-of-that-name"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the kernel panics", func(t *testing.T) {
		cfg, _ := shell(t, "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 60")
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the machine ended") || !strings.Contains(err.Error(), "Kernel panic") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("it takes too long", func(t *testing.T) {
		cfg, _ := shell(t, "echo running; sleep 1000")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		cfg.Output = writer(func() { cancel(errors.New("enough")) })
		if _, err := Run(ctx, cfg); err == nil || !strings.Contains(err.Error(), "the job was running: enough") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("it does not come up", func(t *testing.T) {
		cfg, _ := shell(t, "true")
		cfg.BootTimeout = time.Second
		again := 0
		cfg.Log = func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "it is started once more: the job had not started after 1s") {
				again++
			}
		}
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the job had not started after 1s") || again != 1 {
			t.Errorf("started once more %d times: %v", again, err)
		}
	})
	t.Run("init fails", func(t *testing.T) {
		cfg, _ := shell(t, "true")
		cfg.Job.Dir = "/none"
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "init: chdir /none") {
			t.Errorf("got %v", err)
		}
	})
}
