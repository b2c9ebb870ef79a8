package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// attachment is an attached client.
type attachment struct {
	typed *io.PipeWriter
	out   lockedBuffer
	ended chan error
	leave context.CancelFunc
}

// attach attaches to a container: from here on the client gets what it prints.
func (n *node) attach(id string, dial func(string) (remotecommand.Executor, error), req *cri.AttachRequest, out io.Writer) *attachment {
	n.Helper()
	req.ContainerId = id
	resp, err := n.rt.Attach(n.ctx, req)
	n.check(err)
	e, err := dial(resp.GetUrl())
	n.check(err)
	ctx, cancel := context.WithCancel(n.ctx)
	in, typed := io.Pipe()
	n.Cleanup(func() { cancel(); typed.Close() })
	a := &attachment{typed: typed, ended: make(chan error, 1), leave: cancel}
	if out == nil {
		out = &a.out
	}
	o := remotecommand.StreamOptions{Stdout: out}
	if req.Stdin {
		o.Stdin = in
	}
	go func() { a.ended <- e.StreamWithContext(ctx, o) }()
	return a
}

func (a *attachment) write(n *node, s string) {
	n.Helper()
	_, err := io.WriteString(a.typed, s)
	n.check(err)
}

func TestAttachments(t *testing.T) {
	n := newNode(t)
	sb := n.run("attachments")
	reader := func(name string, once bool) string {
		c := shell(name, "echo before; while read l; do echo got $l; done; echo after; exit 6")
		c.Stdin, c.StdinOnce = true, once
		id := n.launch(sb, c)
		n.eventually("the first output", func() bool {
			return strings.Contains(strings.Join(n.logLines(n.status(id).GetLogPath()), "\n"), "before")
		})
		return id
	}
	// ready runs a script until it has set its trap: before that a signal is nothing to it, as the first process of its namespace.
	ready := func(name, trap string) string {
		id := n.launch(sb, shell(name, "trap '"+trap+"' TERM; while :; do sleep 0.05; done"))
		n.eventually("its trap", func() bool { return n.catches(id, syscall.SIGTERM) })
		return id
	}
	both := func() *cri.AttachRequest { return &cri.AttachRequest{Stdin: true, Stdout: true} }
	t.Run("several, one of which leaves", func(t *testing.T) {
		id := reader("several", false)
		a, b := n.attach(id, dialSPDY, both(), nil), n.attach(id, dialWebSocket, both(), nil)
		a.write(n, "a\n")
		n.eventually("its line at the first", a.out.has("got a\n"))
		b.write(n, "b\n")
		n.eventually("its line at the second", b.out.has("got b\n")) // from here on both are attached
		a.write(n, "to both\n")
		for _, c := range []*attachment{a, b} {
			n.eventually("a line at both", c.out.has("got to both\n"))
		}
		a.leave()
		<-a.ended
		listener := n.attach(id, dialSPDY, &cri.AttachRequest{Stdout: true}, nil)
		b.typed.Close() // the end of one client's stdin is not that of the container's
		if err := <-b.ended; err != nil {
			t.Errorf("an attachment whose input has ended: %v", err)
		}
		third := n.attach(id, dialSPDY, both(), nil)
		third.write(n, "c\n")
		for _, c := range []*attachment{listener, third} {
			n.eventually("a line at those that stay", c.out.has("got c\n"))
		}
		if b.out.has("before")() || third.out.has("got a")() {
			t.Errorf("output from before is repeated: %q, %q", b.out.String(), third.out.String())
		}
		n.check(n.tryStop(id, 0))
		for _, c := range []*attachment{listener, third} {
			if err := <-c.ended; err != nil {
				t.Errorf("an attachment to a container that has ended: %v", err)
			}
		}
	})
	for name, dial := range map[string]func(string) (remotecommand.Executor, error){"SPDY": dialSPDY, "WebSocket": dialWebSocket} {
		t.Run("stdin once, half-close, "+name, func(t *testing.T) {
			id := reader("once"+name, true)
			a := n.attach(id, dial, both(), nil)
			a.write(n, "x\n")
			a.typed.Close()
			if err := <-a.ended; err != nil || a.out.String() != "got x\nafter\n" {
				t.Errorf("%q, %v", a.out.String(), err)
			}
			if st := n.wait(id); st.GetExitCode() != 6 {
				t.Error(st)
			}
		})
	}
	t.Run("stdin once, the client vanishes", func(t *testing.T) {
		id := reader("vanishes", true)
		a := n.attach(id, dialSPDY, both(), nil)
		a.write(n, "x\n")
		n.eventually("the line", a.out.has("got x\n"))
		a.leave()
		if st := n.wait(id); st.GetExitCode() != 6 {
			t.Error(st)
		}
		<-a.ended
	})
	t.Run("a container without stdin", func(t *testing.T) {
		id := ready("nostdin", "echo bye; exit 0")
		a := n.attach(id, dialSPDY, both(), nil)
		a.write(n, strings.Repeat("nobody reads this\n", 1<<14))
		n.check(n.tryStop(id, 10))
		if err := <-a.ended; err != nil || a.out.String() != "bye\n" {
			t.Errorf("%q, %v", a.out.String(), err)
		}
	})
	t.Run("a client that does not read", func(t *testing.T) {
		const lines = 200000
		c := shell("slow", fmt.Sprintf("read l; seq 1 %d; exit 3", lines))
		c.Stdin = true
		id := n.launch(sb, c)
		stuck, unstick := io.Pipe()
		a := n.attach(id, dialSPDY, both(), unstick)
		a.write(n, "go\n")
		begin := time.Now()
		st := n.wait(id)
		if took := time.Since(begin); took > patience()/2 || st.GetExitCode() != 3 {
			t.Errorf("the container was held up: %v after %v", st, took)
		}
		n.eventually("the whole log", func() bool { return len(n.logLines(st.GetLogPath())) == lines })
		a.leave()
		stuck.Close()
		<-a.ended
	})
	t.Run("the container ends before the client comes", func(t *testing.T) {
		id := reader("gone", false)
		req := both()
		req.ContainerId = id
		resp, err := n.rt.Attach(n.ctx, req)
		n.check(err)
		n.check(n.tryStop(id, 0))
		e, err := dialSPDY(resp.GetUrl())
		n.check(err)
		var out bytes.Buffer
		if err := e.StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("x"), Stdout: &out}); err != nil || out.Len() > 0 {
			t.Errorf("%q, %v", out.String(), err)
		}
		_, err = n.rt.Attach(n.ctx, req)
		wantCode(t, err, codes.FailedPrecondition)
	})
	for name, dial := range map[string]func(string) (remotecommand.Executor, error){"SPDY": dialSPDY, "WebSocket": dialWebSocket} {
		t.Run("the container prints and ends before the client comes, "+name, func(t *testing.T) {
			id := ready("last"+name, "echo out; echo err >&2; exit 7")
			req := &cri.AttachRequest{ContainerId: id, Stdout: true, Stderr: true}
			resp, err := n.rt.Attach(n.ctx, req)
			n.check(err)
			n.check(n.tryStop(id, 60))
			if st := n.wait(id); st.GetExitCode() != 7 {
				t.Error(st)
			}
			e, err := dial(resp.GetUrl())
			n.check(err)
			var out, errOut bytes.Buffer
			if err := e.StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil || out.String() != "out\n" || errOut.String() != "err\n" {
				t.Errorf("%q, %q, %v", out.String(), errOut.String(), err)
			}
			_, err = n.rt.Attach(n.ctx, req)
			wantCode(t, err, codes.FailedPrecondition)
		})
	}
	// A program closes its output; the executor has seen that.
	closed := func(name string) string {
		id := n.launch(sb, shell(name, "exec >/dev/null 2>&1; while :; do sleep 0.05; done"))
		n.eventually("the end of the output", func() bool {
			ctx, leave := context.WithCancel(n.ctx)
			defer leave()
			_, err := n.executor.Hold(ctx, protocol.AttachRequest{ID: ids.ContainerID(id)})
			return errdefs.IsFailedPrecondition(err)
		})
		return id
	}
	t.Run("all output is read, and the end is not known yet", func(t *testing.T) {
		id := closed("ending")
		n.held = func(error) {
			n.check(n.executor.Kill(n.ctx, protocol.KillRequest{ID: ids.ContainerID(id), Signal: int(syscall.SIGKILL)}))
			n.eventually("the end", func() bool {
				s, err := n.executor.State(n.ctx, ids.ContainerID(id))
				return err == nil && s.Phase == protocol.Exited
			})
		}
		defer func() { n.held = nil }()
		_, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdout: true})
		wantCode(t, err, codes.FailedPrecondition, "CONTAINER_EXITED")
	})
	t.Run("a program that has closed its output goes on", func(t *testing.T) {
		id := closed("mute")
		a := n.attach(id, dialSPDY, &cri.AttachRequest{Stdout: true}, nil)
		if err := <-a.ended; err != nil || a.out.String() != "" {
			t.Errorf("%q, %v", a.out.String(), err)
		}
		n.check(n.tryStop(id, 0))
	})
	t.Run("refused", func(t *testing.T) {
		id := reader("refused", false)
		for _, req := range []*cri.AttachRequest{{}, {Tty: true, Stdout: true}, {Tty: true, Stdout: true, Stderr: true}} {
			req.ContainerId = id
			_, err := n.rt.Attach(n.ctx, req)
			wantCode(t, err, codes.InvalidArgument)
		}
	})
}
