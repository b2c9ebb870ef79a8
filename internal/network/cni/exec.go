package cni

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/wait"
)

const (
	maxStdout = 1 << 20  // bytes of an answer
	maxStderr = 64 << 10 // bytes kept of what a plugin says beside
	maxQuoted = 1 << 10  // bytes of either in an error

	// pipeGrace is how long a plugin's output is waited for when the plugin has ended and a child of it holds the pipe.
	pipeGrace = time.Second

	// A plugin that is being installed cannot be executed for a moment, and the kernel tells nobody when it can.
	busyRetries = 5
	busyPause   = 200 * time.Millisecond
)

// callVariable marks the processes of one call, so that they are found whatever they have made of themselves.
const callVariable = "MONOPOD_CNI_CALL"

// executor runs plugins for libcni. A plugin that does not answer before its context ends is killed with its children.
type executor struct {
	version.PluginDecoder
	log *slog.Logger
}

var _ invoke.Exec = (*executor)(nil)

func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", fmt.Errorf("CNI plugin %q is in none of the folders %s: install it there, or add its folder to network.cni.binDirs: %w",
			plugin, strings.Join(paths, ", "), errdefs.ErrFailedPrecondition)
	}
	return path, nil
}

// ExecPlugin runs one plugin for one command and returns its answer. A failure names the plugin, the command and what it said.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	c := call{path: path, stdin: stdin, mark: callVariable + "=" + rand.Text(), command: variable(environ, "CNI_COMMAND")}
	c.environ = append(environ, c.mark)
	begin := time.Now()
	err := c.run(ctx)
	for range busyRetries {
		if !errors.Is(err, unix.ETXTBSY) || wait.For(ctx, busyPause) != nil {
			break
		}
		err = c.run(ctx)
	}
	e.log.Debug("CNI plugin ran", "plugin", c.name(), "command", c.command, "sandbox", variable(environ, "CNI_CONTAINERID"),
		"time", time.Since(begin), "error", err, "stderr", string(c.stderr.Bytes()[:min(len(c.stderr.Bytes()), maxQuoted)]))
	if ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("CNI plugin %s gave no answer to %s within %s; it was killed with its children%s: %w",
			c.name(), c.command, time.Since(begin).Round(time.Millisecond), c.said(), errdefs.ErrUnavailable)
	}
	if err := c.judge(err); err != nil {
		return nil, fmt.Errorf("CNI plugin %s, %s: %w", c.name(), c.command, err)
	}
	return c.stdout.Bytes(), nil
}

// call is one execution of a plugin.
type call struct {
	path, command, mark string
	stdin               []byte
	environ             []string
	stdout, stderr      bounded
}

func (c *call) name() string { return filepath.Base(c.path) }

func (c *call) run(ctx context.Context) error {
	c.stdout, c.stderr = bounded{max: maxStdout}, bounded{max: maxStderr}
	cmd := exec.CommandContext(ctx, c.path)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", c.environ, bytes.NewReader(c.stdin), &c.stdout, &c.stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		killTree(cmd.Process.Pid) // it is not reaped before Cancel has returned
		killMarked(func(env []byte) bool { return hasVariable(env, c.mark) })
		return nil
	}
	cmd.WaitDelay = pipeGrace
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // the plugin has ended well; what its child writes is no answer
	}
	return err
}

// judge makes an error of an execution that was no success: of what the plugin says by the specification, else of all it has
// printed. An ADD without an answer is a failure too.
func (c *call) judge(err error) error {
	if c.stdout.dropped > 0 {
		return fmt.Errorf("it wrote more than %d bytes of standard output%s: %w", maxStdout, c.said(), errdefs.ErrInternal)
	}
	out := bytes.TrimSpace(c.stdout.Bytes())
	if err == nil {
		var object map[string]json.RawMessage
		if c.command == "ADD" && json.Unmarshal(out, &object) != nil {
			return fmt.Errorf("it ended well, but its answer is no JSON object%s: %w", c.said(), errdefs.ErrInternal)
		}
		return nil
	}
	var said types.Error
	if json.Unmarshal(out, &said) == nil && (said.Msg != "" || said.Code != 0) {
		return fmt.Errorf("%w (code %d): %w", &said, said.Code, class(said.Code))
	}
	return fmt.Errorf("%w%s: %w", err, c.said(), errdefs.ErrInternal)
}

// class maps the codes of the specification, and the ranges that it leaves to plugins.
func class(code uint) error {
	switch code {
	case types.ErrTryAgainLater, types.ErrPluginNotAvailable, types.ErrLimitedConnectivity:
		return errdefs.ErrUnavailable
	case types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField, types.ErrInvalidNetworkConfig:
		return errdefs.ErrFailedPrecondition
	}
	return errdefs.ErrInternal
}

// said quotes what a plugin has printed, bounded.
func (c *call) said() string {
	var s string
	if out := c.stdout.Bytes(); len(out) > 0 {
		s += "; standard output: " + quote(out)
	}
	if out := c.stderr.Bytes(); len(out) > 0 {
		s += "; standard error: " + quote(out)
	}
	if s == "" {
		return "; it printed nothing"
	}
	return s
}

func quote(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > maxQuoted {
		return fmt.Sprintf("%q and %d bytes more", b[:maxQuoted], len(b)-maxQuoted)
	}
	return fmt.Sprintf("%q", b)
}

// bounded keeps the first bytes that are written to it, and counts the others. The buffer is not embedded: its ReadFrom would be
// used, and knows no bound.
type bounded struct {
	buf          bytes.Buffer
	max, dropped int
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.max-b.buf.Len())
	b.buf.Write(p[:keep])
	b.dropped += len(p) - keep
	return len(p), nil
}

func (b *bounded) Bytes() []byte { return b.buf.Bytes() }

// variable returns the value of an environment variable.
func variable(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
