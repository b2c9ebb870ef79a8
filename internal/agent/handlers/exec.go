package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
)

func (h *Handlers) probeExec(ctx context.Context, on Subject, what *v1.ExecAction, timeout time.Duration) Answer {
	stdout, stderr, code, err := h.exec.ExecSync(ctx, on.ID, expanded(what.Command, on.Container.Env), timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Answer{Failure, err.Error()}
	case err != nil:
		return Answer{Unknown, err.Error()}
	case code != 0:
		return Answer{Failure, both(stdout, stderr)}
	}
	return Answer{Success, both(stdout, stderr)}
}

// expanded is a probe's command with the container's variables. Only those with a value of their own are known: what they refer to is not read
// for a probe, in a kubelet neither.
func expanded(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Name] = e.Value
	}
	all := make([]string, len(command))
	for i, word := range command {
		all[i] = podspec.Expand(word, func(name string) (string, bool) { v, ok := values[name]; return v, ok })
	}
	return all
}

// both is the beginning of what a command wrote.
func both(stdout, stderr []byte) string {
	stdout = stdout[:min(len(stdout), MaxOutput)]
	return string(stdout) + string(stderr[:min(len(stderr), MaxOutput-len(stdout))])
}

// Runtime is the part of CRI that runs commands.
type Runtime interface {
	ExecSync(ctx context.Context, req *cri.ExecSyncRequest, opts ...grpc.CallOption) (*cri.ExecSyncResponse, error)
}

// CRI is the Executor of a container runtime.
type CRI struct{ Runtime Runtime }

// execMargin is what a runtime has beyond a command's own time to end what is over its time, and to answer.
const execMargin = 15 * time.Second

// ExecSync is Executor's. With a timeout a runtime that is away is not waited for: a probe comes again. Without one the client's own way holds.
func (c CRI) ExecSync(ctx context.Context, id ids.ContainerID, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	var options []grpc.CallOption
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+execMargin)
		defer cancel()
		options = append(options, grpc.WaitForReady(false))
	}
	// CRI counts in seconds, and 0 would be no limit.
	seconds := int64((timeout + time.Second - 1) / time.Second)
	resp, err := c.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: string(id), Cmd: cmd, Timeout: seconds}, options...)
	if status.Code(err) == codes.DeadlineExceeded && timeout > 0 {
		return nil, nil, 0, timedOut{cmd, timeout}
	}
	if err != nil {
		return nil, nil, 0, err
	}
	return resp.Stdout, resp.Stderr, resp.ExitCode, nil
}

// timedOut says that a command was not done in time, in a kubelet's words.
type timedOut struct {
	cmd   []string
	after time.Duration
}

func (t timedOut) Error() string {
	return fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(t.cmd, " "), t.after)
}

// Is gives it its class.
func (timedOut) Is(target error) bool { return target == context.DeadlineExceeded }
