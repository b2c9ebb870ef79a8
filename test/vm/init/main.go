//go:build linux

// Command init is the first process of the test machine. From the initial ramdisk it loads the kernel modules and goes
// over to the root disk (pivot_root, which containers need, refuses to leave an initial ramdisk); there it makes the
// machine what a node expects of one, runs the job, reports its exit, and switches the machine off.
//
// It reports what goes wrong on the console and as an event, so that the runner need not wait for its time-out.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/vm/guest"
)

func main() {
	events := &reporter{}
	code, err := run(events)
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		events.send(guest.Event{Kind: guest.Exited, Code: 255, Error: err.Error()})
	} else {
		events.send(guest.Event{Kind: guest.Exited, Code: code})
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "init: power off:", err)
		select {} // the first process must not end: the kernel would panic
	}
}

// reporter sends events; before its port is open it only keeps quiet.
type reporter struct{ port *os.File }

func (r *reporter) send(e guest.Event) {
	if r.port == nil {
		return
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err == nil {
		e.Uptime = time.Duration(now.Nano()).Seconds()
	}
	if raw, err := json.Marshal(e); err == nil {
		_, _ = r.port.Write(append(raw, '\n')) // there is nobody else to tell
	}
}

func run(events *reporter) (code int, err error) {
	for _, step := range []func() error{mountInitial, loadModules} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	if events.port, err = openPort(guest.EventPort); err != nil {
		return 0, err
	}
	output, err := openPort(guest.OutputPort)
	if err != nil {
		return 0, err
	}
	for _, step := range []func() error{switchRoot, mountAll, configure} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	raw, err := os.ReadFile(guest.JobFile)
	if err != nil {
		return 0, err
	}
	var job guest.Job
	if err := json.Unmarshal(raw, &job); err != nil {
		return 0, fmt.Errorf("%s: %w", guest.JobFile, err)
	}
	events.send(guest.Event{Kind: guest.Started})
	return runJob(job, output)
}

// runJob runs the command and reaps whatever is orphaned meanwhile.
func runJob(job guest.Job, output *os.File) (int, error) {
	for _, kv := range append([]string{"PATH=/payload/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "TMPDIR=/tmp", "TERM=dumb"}, job.Env...) {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	if err := os.Chdir(job.Dir); err != nil {
		return 0, err
	}
	path, err := exec.LookPath(job.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(path, job.Args, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, output, output}, Sys: &unix.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the job: %w", err)
		case pid != p.Pid:
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}

// openPort opens a virtio-serial port by its name.
func openPort(name string) (*os.File, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range ports {
		if found, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(found)) == name {
			return openDevice("/dev/" + filepath.Base(filepath.Dir(file)))
		}
	}
	return nil, fmt.Errorf("the machine has no virtio-serial port %q, only %q", name, ports)
}

func openDevice(path string) (*os.File, error) {
	// Not through os.OpenFile, which would set the descriptor, and with it the job's output, non-blocking.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
