//go:build cgo

// Package podinit makes the first process of a PID namespace that the containers of a pod share.
//
// The process is this very program, and costs some tens of kilobytes: it branches off in C code before Go's runtime
// starts, so whoever calls Start must be a program that has this package in it. It reaps, and does nothing else. It has
// an empty read-only root, no capabilities, no descriptors, namespaces of its own where the pod's are not given, and a
// seccomp filter that leaves it nothing but to wait; only a SIGKILL from outside the namespace ends it, and with it
// every process in the namespace.
//
// It takes two processes. The first one (the child that Start starts) is put into the cgroups, joins the namespaces, and
// clones the second one, which is the init: born in the cgroups, and a child of the caller. Whatever dies at whatever
// point, everything that exists is in the cgroups, where it can be found and killed.
package podinit

import "C" // makes podinit.c part of the program

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/pairs"
)

// Name is the init's argv[0], as podinit.c has it too. It is what ps shows in the pod.
const Name = "monopod:pod-init"

// Namespace is a namespace to join.
type Namespace struct {
	Kind string // net, ipc, uts or user, as under /proc/PID/ns
	Path string
}

// Config says what to make.
type Config struct {
	// Join are the namespaces to join, a user namespace last: it owns what is made after it. Those of net, ipc and uts
	// that are not named are new ones.
	Join []Namespace
	// CgroupFD is a directory of a v2 cgroup to be born in; -1: none.
	CgroupFD int
	// Enter puts the process, a single thread, into further cgroups, before it goes on; nil: there are none.
	Enter func(pid int) error
}

// timeout bounds the making. It takes milliseconds, unless the kernel is stuck.
const timeout = 10 * time.Second

// message is what the processes say, as podinit.c has it.
type message struct {
	Kind, Value int32
	Step        [32]byte
}

// Start makes an init and returns its pid, a child of this process that is not reaped yet. When it fails there may be
// processes left in the cgroups, which the caller kills.
func Start(ctx context.Context, cfg Config) (pid int, err error) {
	ours, theirs, err := pairs.Packets("pod init")
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	p, err := begin(cfg, theirs)
	theirs.Close() // so that the end of the last process is the end of what is to be read
	if err != nil {
		return 0, err
	}
	deadline := time.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ours.SetDeadline(deadline)
	defer func() {
		if err != nil {
			p.Kill()
		}
		_, _ = p.Wait() // it has nothing to do but to end
	}()
	if cfg.Enter != nil {
		if err := cfg.Enter(p.Pid); err != nil {
			return 0, err
		}
	}
	if _, err := ours.Write([]byte{1}); err != nil {
		return 0, fmt.Errorf("the init's maker is gone: %w", err)
	}
	return listen(ours)
}

// begin starts the first process.
func begin(cfg Config, channel *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	args, files := []string{Name}, []*os.File{null, null, null, channel}
	for _, n := range cfg.Join {
		f, err := os.Open(n.Path)
		if err != nil {
			return nil, fmt.Errorf("%s namespace: %w", n.Kind, err)
		}
		defer f.Close()
		args, files = append(args, n.Kind), append(files, f)
	}
	attr := &os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{}}
	if cfg.CgroupFD >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cfg.CgroupFD
	}
	p, err := os.StartProcess("/proc/self/exe", args, attr)
	if err != nil {
		return nil, fmt.Errorf("start the init's maker: %w", err)
	}
	return p, nil
}

// listen waits until the init is ready and has closed its end, and returns its pid. The two processes say things in
// either order.
func listen(ours io.Reader) (pid int, err error) {
	for ready := false; ; {
		buf := make([]byte, binary.Size(message{}))
		n, err := ours.Read(buf)
		switch {
		case errors.Is(err, io.EOF) && ready && pid != 0:
			return pid, nil
		case errors.Is(err, io.EOF):
			return pid, errors.New("the process ended before it was an init")
		case err != nil:
			return pid, fmt.Errorf("wait for the init: %w", err)
		case n != len(buf):
			return pid, fmt.Errorf("the init says %q", buf[:n])
		}
		var m message
		if _, err := binary.Decode(buf, binary.NativeEndian, &m); err != nil {
			return pid, err
		}
		switch m.Kind {
		case 'P':
			pid = int(m.Value)
		case 'R':
			ready = true
		default:
			step, _, _ := bytes.Cut(m.Step[:], []byte{0})
			return pid, fmt.Errorf("%s: %w", step, unix.Errno(m.Value))
		}
	}
}
