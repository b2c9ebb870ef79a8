// Package launch makes sure that an executor runs: it finds the one that serves the socket, or starts one that outlives
// the caller, in a session and a cgroup of its own.
package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Ready is what a keeper writes to its ready pipe, as one line, once it serves. Any other line is an error.
const Ready = "ready"

// Running is what a keeper writes to its ready pipe when another keeper has the directory.
const Running = "running"

// Config says which executor is wanted.
type Config struct {
	// Binary is the path of monopod-executor.
	Binary string
	// Build is the version that Binary is expected to have, which is the caller's. It is used in messages only.
	Build string
	// Socket is the path of the unix socket, at most 107 bytes long.
	Socket string
	// Dir holds the executor's state of this boot: records, the journal of exits. It is made when it is missing.
	Dir string
	// CgroupPath is the executor's own cgroup, as an absolute cgroupfs path ("/monopod/executor"). Empty: the caller's.
	CgroupPath string
	// LogFile is appended to by keeper and worker. Empty: Dir/log. At 8 MiB they begin a new one, and keep the old one with the
	// suffix ".1".
	LogFile string
	// Patience bounds how long a keeper may take to end on SIGTERM; 0: ten seconds. One that holds nothing that runs does so at once, and any other says nothing.
	Patience time.Duration
}

// endPatience is the default of Config.Patience.
const endPatience = 10 * time.Second

// maxSocketPath is the room for a path in sockaddr_un, less its final zero.
const maxSocketPath = 107

// Ensure makes sure that an executor answers on the socket. When none does, it starts one and waits until it serves. One that is not Config.Binary
// (Monopod was updated, or has gone back to an older version) is made to go on as it, under its containers. Where that cannot be, it is ended for it when no
// container runs; else it goes on, and the outcome says why. One with which there is no protocol in common, that cannot go on as Config.Binary and in which containers
// run is an error.
// Two callers at a time start one executor.
func Ensure(ctx context.Context, cfg Config) (Outcome, error) {
	if len(cfg.Socket) > maxSocketPath {
		return Outcome{}, fmt.Errorf("executor socket %s: the path has %d bytes, the kernel allows %d: choose a shorter run directory",
			cfg.Socket, len(cfg.Socket), maxSocketPath)
	}
	if out, there, err := find(ctx, cfg); err != nil || there {
		return out, err
	}
	for _, dir := range []string{cfg.Dir, filepath.Dir(cfg.Socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return Outcome{}, fmt.Errorf("executor directory: %w", err)
		}
	}
	for try := 1; ; try++ {
		word, err := start(ctx, cfg)
		if err != nil {
			return Outcome{}, err
		}
		switch word {
		case Ready, Running: // or another caller was faster: its executor is there, or about to be
			h, err := hello(ctx, cfg, word)
			if word == Running && errdefs.IsUnavailable(err) && try < maxStarts && ctx.Err() == nil {
				if err := failpoint.Hit("executor/launch/again"); err != nil {
					return Outcome{}, err
				}
				continue // or the one that has the directory is about to end
			}
			return Outcome{Build: h.Build}, err
		case "":
			return Outcome{}, fmt.Errorf("%s ended before it served %s; its log %s says why", cfg.Binary, cfg.Socket, logFile(cfg))
		}
		return Outcome{}, fmt.Errorf("start of %s: %s", cfg.Binary, word)
	}
}

const (
	// runningPatience is how long an executor that was there may take to serve, before it is looked again whether it is.
	runningPatience = time.Second
	maxStarts       = 10
)

// hello asks the executor that was started who it is.
func hello(ctx context.Context, cfg Config, word string) (protocol.HelloResponse, error) {
	var patience time.Duration // the client's own
	if word == Running {
		patience = runningPatience
	}
	c := client.New(client.Config{Socket: cfg.Socket, Patience: patience})
	defer c.Close()
	return c.Hello(ctx)
}

// maxEnds bounds how often an executor is ended that goes on all the same: its worker, when its keeper has died of something else.
const maxEnds = 3

// find makes the executor that answers the installed one, if one does.
func find(ctx context.Context, cfg Config) (out Outcome, there bool, err error) {
	for range maxEnds {
		h, err := greet(ctx, cfg.Socket)
		var refused *protocol.Error
		switch {
		case err == nil:
			out, gone, err := update(ctx, cfg, h)
			return out, !gone, err
		case !errors.As(err, &refused):
			return Outcome{}, false, nil // nobody answers
		}
		if out, gone, err := convert(ctx, cfg, refused); err != nil || !gone {
			return out, true, err
		}
	}
	return Outcome{}, false, fmt.Errorf("the executor that serves %s goes on however often it is ended: look at %s, and reboot the machine", cfg.Socket, logFile(cfg))
}

// greet asks who serves the socket. It waits only where somebody listens: while a worker is being replaced, its keeper holds the socket. A *protocol.Error is of
// an executor with which there is nothing in common to speak.
func greet(ctx context.Context, socket string) (protocol.HelloResponse, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return protocol.HelloResponse{}, err
	}
	conn.Close()
	c := client.New(client.Config{Socket: socket})
	defer c.Close()
	return c.Hello(ctx)
}

func logFile(cfg Config) string {
	if cfg.LogFile != "" {
		return cfg.LogFile
	}
	return filepath.Join(cfg.Dir, "log")
}

// start runs the binary, which detaches a keeper and ends, and returns the line that the keeper writes when it serves.
func start(ctx context.Context, cfg Config) (word string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	logf, err := os.OpenFile(logFile(cfg), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		w.Close()
		return "", fmt.Errorf("executor log: %w", err)
	}
	defer logf.Close()
	// A command without the caller's context: the executor must not end with the call that happened to start it.
	cmd := exec.Command(cfg.Binary, "keeper", "--detach", "--ready-fd", "3",
		"--socket", cfg.Socket, "--dir", cfg.Dir, "--cgroup", cfg.CgroupPath)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logf, logf
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = environment(os.Environ())
	err = cmd.Start()
	w.Close() // only the executor's end must keep the pipe open
	if err != nil {
		return "", fmt.Errorf("start %s: %w", cfg.Binary, err)
	}
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, rerr := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	werr := cmd.Wait() // it ends at once: the keeper is its detached child
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case rerr != nil && !errors.Is(rerr, io.EOF):
		return "", rerr
	case line == "" && werr != nil:
		return "", fmt.Errorf("%s: %w; its log %s says why", cfg.Binary, werr, logFile(cfg))
	}
	return strings.TrimSpace(line), nil
}

// environment is what the executor inherits: nothing that belongs to the caller's session, but for what tests and
// operators steer it with.
func environment(env []string) []string {
	kept := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, kv := range env {
		if strings.HasPrefix(kv, "MONOPOD_") || strings.HasPrefix(kv, "GOCOVERDIR=") {
			kept = append(kept, kv)
		}
	}
	return kept
}
