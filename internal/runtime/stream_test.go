package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// protocols are the two ways in which clients stream.
func protocols(t *testing.T, f func(t *testing.T, dial func(url string) remotecommand.Executor)) {
	for name, dial := range map[string]func(string) (remotecommand.Executor, error){
		"SPDY": func(raw string) (remotecommand.Executor, error) {
			u, err := url.Parse(raw)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
		},
		"WebSocket": func(raw string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, raw)
		},
		"WebSocket v4": func(raw string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, raw, "v4.channel.k8s.io")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f(t, func(raw string) remotecommand.Executor {
				e, err := dial(raw)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// lockedBuffer is a buffer that is read while it is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) has(s string) func() bool {
	return func() bool { return strings.Contains(b.String(), s) }
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// sizes are the window sizes that a client sends.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestExec(t *testing.T) {
	n := newNode(t)
	id := n.launch(n.run("stream"), shell("c", sleeper))
	prepare := func(t *testing.T, req *cri.ExecRequest) string {
		t.Helper()
		req.ContainerId = id
		resp, err := n.rt.Exec(n.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetUrl()
	}
	protocols(t, func(t *testing.T, dial func(string) remotecommand.Executor) {
		t.Run("streams and code", func(t *testing.T) {
			u := prepare(t, &cri.ExecRequest{Cmd: []string{"sh", "-c", "head -c 1048576; echo err >&2; exit 5"}, Stdin: true, Stdout: true, Stderr: true})
			var out, errOut bytes.Buffer
			in := strings.Repeat("0123456789abcdef", 1<<16)
			err := dial(u).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errOut})
			var code exec.CodeExitError
			if !errors.As(err, &code) || code.Code != 5 {
				t.Errorf("error %v, want the code 5", err)
			}
			if out.String() != in || errOut.String() != "err\n" {
				t.Errorf("%d bytes of stdout, stderr %q", out.Len(), errOut.String())
			}
			if err := dial(u).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut}); err == nil {
				t.Error("a URL was good twice")
			}
		})
		t.Run("terminal", func(t *testing.T) {
			u := prepare(t, &cri.ExecRequest{Cmd: []string{"sh"}, Stdin: true, Stdout: true, Tty: true})
			in, typed := io.Pipe()
			var out lockedBuffer
			size := make(sizes, 2)
			size <- remotecommand.TerminalSize{Width: 101, Height: 33}
			done := make(chan error, 1)
			go func() {
				err := dial(u).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: size})
				in.CloseWithError(fmt.Errorf("the session has ended: %v", err))
				done <- err
			}()
			ask := func(line, want string) {
				t.Helper()
				n.eventually(want, func() bool {
					if _, err := io.WriteString(typed, line); err != nil {
						t.Fatalf("%v; output so far %q", err, out.String())
					}
					time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the shell's time to answer, before it is asked again
					return out.has(want)()
				})
			}
			ask("stty size\n", "33 101")
			size <- remotecommand.TerminalSize{Width: 55, Height: 22}
			ask("stty size\n", "22 55")
			ask("tty; echo $TERM-$((1+1))\n", "xterm-2")
			if _, err := io.WriteString(typed, "exit 9\n"); err != nil {
				t.Error(err)
			}
			var code exec.CodeExitError
			if err := <-done; !errors.As(err, &code) || code.Code != 9 {
				t.Errorf("error %v, want the code 9", err)
			}
			typed.Close()
			close(size)
		})
		t.Run("the client goes", func(t *testing.T) {
			u := prepare(t, &cri.ExecRequest{Cmd: []string{"sh", "-c", "while :; do echo mark-3603; sleep 0.02; done"}, Stdout: true})
			ctx, cancel := context.WithCancel(n.ctx)
			var out lockedBuffer
			done := make(chan error, 1)
			go func() { done <- dial(u).StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out}) }()
			n.eventually("output", out.has("mark"))
			cancel()
			<-done
			n.eventually("the command to end", func() bool { return !strings.Contains(n.exec(id, "ps"), "mark-3603") })
		})
	})
	t.Run("refused", func(t *testing.T) {
		for _, req := range []*cri.ExecRequest{
			{ContainerId: id, Cmd: []string{"sh"}},
			{ContainerId: id, Cmd: []string{"sh"}, Tty: true, Stderr: true, Stdout: true},
			{ContainerId: id, Stdout: true},
		} {
			_, err := n.rt.Exec(n.ctx, req)
			wantCode(t, err, codes.InvalidArgument)
		}
		_, err := n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: strings.Repeat("a", 64), Cmd: []string{"sh"}, Stdout: true})
		wantCode(t, err, codes.NotFound)
		resp, err := http.Get(strings.Replace(prepare(t, &cri.ExecRequest{Cmd: []string{"true"}, Stdout: true}), "/exec/", "/exec/x", 1))
		n.check(err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("a wrong token: %s", resp.Status)
		}
	})
}

func TestAttach(t *testing.T) {
	n := newNode(t)
	sb := n.run("attach")
	protocols(t, func(t *testing.T, dial func(string) remotecommand.Executor) {
		t.Run("pipes", func(t *testing.T) {
			c := shell("pipes"+t.Name(), "while read l; do echo got $l; echo err $l >&2; [ $l = end ] && exit 4; done; exit 5")
			c.Stdin, c.LogPath = true, ""
			id := n.launch(sb, c)
			resp, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
			n.check(err)
			var out, errOut lockedBuffer
			in, typed := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- dial(resp.GetUrl()).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errOut})
			}()
			_, err = io.WriteString(typed, "a\n")
			n.check(err)
			n.eventually("the answer", out.has("got a\n"))
			_, err = io.WriteString(typed, "end\n")
			n.check(err)
			if err := <-done; err != nil {
				t.Errorf("attach ended with %v", err)
			}
			typed.Close()
			if st := n.wait(id); st.GetExitCode() != 4 || !errOut.has("err end\n")() {
				t.Errorf("%v; stderr %q", st, errOut.String())
			}
		})
		t.Run("terminal", func(t *testing.T) {
			c := shell("tty"+t.Name(), "")
			c.Command, c.Stdin, c.Tty, c.LogPath = []string{"sh"}, true, true, ""
			id := n.launch(sb, c)
			resp, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Tty: true})
			n.check(err)
			var out lockedBuffer
			in, typed := io.Pipe()
			size := make(sizes, 1)
			size <- remotecommand.TerminalSize{Width: 77, Height: 44}
			done := make(chan error, 1)
			go func() {
				done <- dial(resp.GetUrl()).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: size})
			}()
			n.eventually("the size", func() bool {
				_, err := io.WriteString(typed, "stty size\n")
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the shell's time to answer, before it is asked again
				return err == nil && out.has("44 77")()
			})
			_, err = io.WriteString(typed, "exit 3\n")
			n.check(err)
			<-done
			typed.Close()
			close(size)
			if st := n.wait(id); st.GetExitCode() != 3 {
				t.Error(st)
			}
		})
	})
	protocols(t, func(t *testing.T, dial func(string) remotecommand.Executor) {
		t.Run("terminal, by a client that has none", func(t *testing.T) {
			c := shell("pipe"+t.Name(), "while read l; do [ $l = go ] && break; done; echo went; exit 6")
			c.Stdin, c.StdinOnce, c.Tty, c.LogPath = true, true, true, ""
			id := n.launch(sb, c)
			resp, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
			n.check(err)
			var out, errOut lockedBuffer
			err = dial(resp.GetUrl()).StreamWithContext(n.ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("go\n"), Stdout: &out, Stderr: &errOut})
			if st := n.wait(id); err != nil || st.GetExitCode() != 6 || !out.has("went")() || errOut.String() != "" {
				t.Errorf("%v, %v, stdout %q, stderr %q", err, st, out.String(), errOut.String())
			}
		})
	})
	id := n.launch(sb, shell("plain", sleeper))
	_, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdout: true, Tty: true})
	wantCode(t, err, codes.InvalidArgument, "tty")
	n.check(n.tryStop(id, 5))
	_, err = n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: id, Stdout: true})
	wantCode(t, err, codes.FailedPrecondition, id)
}
