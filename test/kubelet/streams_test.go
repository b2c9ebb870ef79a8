//go:build kubelet

package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"monopod.dev/monopod/test/harness"
)

// oneSize is a terminal that has one size.
type oneSize chan remotecommand.TerminalSize

func (s oneSize) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// awaited calls found when a line has come.
type awaited struct {
	bytes.Buffer
	line  string
	found func()
}

func (a *awaited) Write(p []byte) (int, error) {
	n, err := a.Buffer.Write(p)
	if strings.Contains(a.String(), a.line) {
		a.found()
	}
	return n, err
}

func streams(n *node) {
	for i, protocol := range []string{"spdy", "websocket"} {
		sh := func(command string) session {
			return session{verb: "exec", pod: "full", container: "main", command: []string{"sh", "-c", command}, protocol: protocol}
		}
		out, errout, err := n.api.stream(sh("echo out; echo err >&2; exit 7"))
		code, ok := err.(exec.CodeExitError)
		if out != "out\n" || errout != "err\n" || !ok || code.Code != 7 {
			n.Errorf("%s: exec: %q %q %v", protocol, out, errout, err)
		}
		s := sh("wc -c")
		s.stdin = strings.NewReader(strings.Repeat("x", 1<<20))
		if protocol == "spdy" { // the kubelet's proxy of WebSockets cannot half-close (protocol v5 can, where the client speaks it)
			if out, errout, err = n.api.stream(s); out != "1048576\n" || err != nil {
				n.Errorf("%s: exec with stdin: %q %q %v", protocol, out, errout, err)
			}
		}
		sizes := make(oneSize, 1)
		sizes <- remotecommand.TerminalSize{Width: 101, Height: 37}
		close(sizes)
		s = sh("while [ \"$(stty size)\" != '37 101' ]; do usleep 10000; done; tty; stty size")
		s.tty, s.sizes = true, sizes
		if out, _, err = n.api.stream(s); !strings.Contains(out, "/dev/pts/0\r\n37 101\r\n") || err != nil {
			n.Errorf("%s: exec with a terminal: %q %v", protocol, out, err)
		}
		// cat repeats its input for ever: the client goes when it has it back.
		r, w := io.Pipe()
		done := make(chan string, 1)
		ctx, leave := context.WithTimeout(context.Background(), time.Minute)
		defer leave()
		line := protocol + " says hello\n"
		go func() {
			out, _, err := n.api.stream(session{verb: "attach", pod: "talk", container: "cat", protocol: protocol, stdin: r, ctx: ctx, seen: &awaited{line: line, found: leave}})
			done <- fmt.Sprint(out, err)
		}()
		if _, err := io.WriteString(w, line); err != nil {
			n.Error(err)
		}
		harness.Eventually(n, "the attached cat repeats", func() (bool, string) {
			out, err := n.api.logs("talk", "cat")
			return strings.Contains(out, line), fmt.Sprint(out, err)
		})
		if got := <-done; !strings.Contains(got, line) {
			n.Errorf("%s: attach: %q", protocol, got)
		}
		w.Close()
		// Who stops typing at a terminal leaves it, as with containerd: the input stays open until the shell has answered.
		typed, typing := io.Pipe()
		go io.WriteString(typing, "echo $((6*7)); exit\n")
		out, _, err = n.api.stream(session{verb: "attach", pod: "tty", container: "tty", protocol: protocol, tty: true, stdin: typed})
		typing.Close()
		if err != nil || !strings.Contains(out, "42") {
			n.Errorf("%s: attach to a terminal: %q %v", protocol, out, err)
		}
		n.await("tty", "its shell is started again", func(p *corev1.Pod) bool { return ready(p) && container(p, "tty").RestartCount == int32(i+1) })
	}
}

func logs(n *node) {
	all, err := n.api.logs("full", "main")
	if err != nil || !strings.Contains(all, "tick 1\n") || !strings.Contains(all, "err 1\n") {
		n.Errorf("log: %q %v", all, err)
	}
	if got, err := n.api.logs("full", "main", "tailLines", "2", "timestamps", "true"); err != nil || strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, "20") {
		n.Errorf("tail: %q %v", got, err)
	}
	if got, err := n.api.logs("full", "main", "sinceSeconds", "2"); err != nil || strings.Contains(got, "tick 1\n") || got == "" {
		n.Errorf("since: %q %v", got, err)
	}
	if got, err := n.api.logs("full", "main", "limitBytes", "3"); err != nil || len(got) != 3 {
		n.Errorf("limit: %q %v", got, err)
	}
	if got, err := n.api.logs("live", "c", "previous", "true"); err != nil || got != "first life\n" {
		n.Errorf("previous: %q %v", got, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	body, err := n.api.open(ctx, podPath("containerLogs", "full", "main"), url.Values{"follow": {"true"}, "tailLines": {"0"}})
	if err != nil {
		n.Fatal(err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for range 4 {
		if !lines.Scan() {
			n.Fatalf("the followed log ended: %v", lines.Err())
		}
	}
}
