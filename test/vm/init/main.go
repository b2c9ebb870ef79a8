//go:build linux

// Command init is the first process of the test machine. From the initial ramdisk it loads the kernel modules and goes
// over to the root disk (pivot_root, which containers need, refuses to leave an initial ramdisk); there it makes the
// machine what a node expects of one, runs the job, reports its exit, and switches the machine off.
//
// On a machine with systemd it hands over to that instead, which makes the machine what it is, and starts this program again, as
// a service, to run the job and all that comes after.
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
	if os.Getpid() != 1 && events.port == nil {
		os.Exit(1) // this is not the machine's
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
	if os.Getpid() != 1 {
		return runService(events)
	}
	for _, step := range []func() error{mountInitial, loadModules} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	output, err := openPorts(events)
	if err != nil {
		return 0, err
	}
	if err := switchRoot(); err != nil {
		return 0, err
	}
	job, err := readJob()
	if err != nil {
		return 0, err
	}
	if job.Systemd { // the ports are closed by this, and opened again by the service
		return 0, os.NewSyscallError("exec "+guest.Systemd, unix.Exec(guest.Systemd, []string{guest.Systemd}, []string{"PATH=" + path}))
	}
	for _, step := range []func() error{mountAll, configure} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	return runJob(job, events, output)
}

// runService is run for the service that systemd starts.
func runService(events *reporter) (int, error) {
	output, err := openPorts(events)
	if err != nil {
		return 0, err
	}
	if err := mountQueues(); err != nil {
		return 0, err
	}
	job, err := readJob()
	if err != nil {
		return 0, err
	}
	return runJob(job, events, output)
}

func openPorts(events *reporter) (output *os.File, err error) {
	if events.port, err = openPort(guest.EventPort); err != nil {
		return nil, err
	}
	return openPort(guest.OutputPort)
}

func readJob() (job guest.Job, err error) {
	raw, err := os.ReadFile(guest.JobFile)
	if err != nil {
		return job, err
	}
	if err := json.Unmarshal(raw, &job); err != nil {
		return job, fmt.Errorf("%s: %w", guest.JobFile, err)
	}
	return job, nil
}

// path is the job's $PATH.
const path = "/payload/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// runJob runs the command and reaps whatever is orphaned meanwhile.
func runJob(job guest.Job, events *reporter, output *os.File) (int, error) {
	events.send(guest.Event{Kind: guest.Started})
	for _, kv := range append([]string{"PATH=" + path, "HOME=/root", "TMPDIR=/tmp", "TERM=dumb"}, job.Env...) {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	if err := os.Chdir(job.Dir); err != nil {
		return 0, err
	}
	program, err := exec.LookPath(job.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(program, job.Args, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, output, output}, Sys: &unix.SysProcAttr{Setsid: true}})
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
