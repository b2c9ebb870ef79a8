package escape

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// TestCVE2022_23471: whoever may execute commands asks for terminals of programs that cannot be started, or goes away while one runs, and says how large the
// terminal is all the while. What waits for the next size is left behind each time, until the node has no memory.
//
// The attacker would have won if something of the calls was left once they had ended: goroutines, threads, descriptors, or processes in the container.
func TestCVE2022_23471(t *testing.T) {
	notShort(t)
	n := startNode(t)
	n.onEachEngine(func(n *node) {
		c := n.pod(nil).launch(shell(sleeper))
		n.leavesNothing(c, rounds(200), func(i int) (string, error) {
			cmd := [][]string{{"/none"}, {"/dev/null"}, {"true"}, {"sleep", "3600"}}[i%4]
			resp, err := n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: c.id, Cmd: cmd, Tty: true, Stdin: true, Stdout: true})
			return resp.GetUrl(), err
		})
	})
	n.wantNoGoroutine("/runtime/stream")
}

// TestCVE2025_64329: the same by attaching, to a container that says nothing, to one that has a terminal, and to one that ends meanwhile.
//
// The attacker would have won if something of the calls was left once they had ended.
func TestCVE2025_64329(t *testing.T) {
	notShort(t)
	n := startNode(t)
	n.onEachEngine(func(n *node) {
		p := n.pod(nil)
		open, terminal := shell(sleeper), shell(sleeper)
		open.Stdin, terminal.Stdin, terminal.Tty = true, true, true
		all := []*container{p.launch(open), p.launch(terminal), p.launch(shell(sleeper))}
		n.leavesNothing(all[0], rounds(200), func(i int) (string, error) {
			c := all[i%3]
			resp, err := n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: c.id, Tty: i%3 == 1, Stdin: true, Stdout: true})
			return resp.GetUrl(), err
		})
		all[2].stop()
	})
	n.wantNoGoroutine("/runtime/stream")
}

// leavesNothing streams so often, by the URL that ask returns, and leaves each stream after a moment. Then what the node's processes hold, and the
// container's processes, have to be as before.
func (n *node) leavesNothing(c *container, times int, ask func(i int) (string, error)) {
	n.Helper()
	few := 8 // at a time
	stream := func(first, number int) {
		var wg sync.WaitGroup
		for w := range few {
			wg.Go(func() {
				for i := first + w; i < first+number; i += few {
					at, err := ask(i)
					if err != nil {
						n.Errorf("a stream is refused: %v", err)
						return
					}
					leave(n.ctx, at, i%4 != 1)
				}
			})
		}
		wg.Wait()
	}
	stream(0, 2*few) // what is needed for the first time is there from now on
	var before holdings
	harness.Eventually(n, "the node has come to rest", func() (bool, string) {
		last := before
		before = n.holds(c)
		return last == before, fmt.Sprint(before)
	})
	stream(0, times)
	harness.Eventually(n, "nothing is left of the streams", func() (bool, string) {
		now := n.holds(c)
		return now.descriptors <= before.descriptors && now.processes <= before.processes, fmt.Sprintf("before %+v, now %+v", before, now)
	})
}

// holdings are what the node's processes hold, and how many processes a container has.
type holdings struct{ descriptors, processes int }

func (n *node) holds(c *container) (h holdings) {
	n.Helper()
	for pid := range n.processes() {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		h.descriptors += len(fds)
	}
	out := c.exec("sh", "-c", "ls -d /proc/[0-9]*")
	h.processes = strings.Count(out, "\n")
	return h
}

// leave streams, tells of sizes, and goes away: when the stream has begun, or, by its own time, in the middle of whatever there is.
func leave(ctx context.Context, at string, begun bool) {
	u, err := url.Parse(at)
	if err != nil {
		return
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond*harness.SlowFactor())
	defer cancel()
	stdin, stop := io.Pipe()
	defer stop.Close()
	sizes := &sizes{ctx: ctx}
	if begun {
		sizes.asked = cancel
	}
	_ = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: io.Discard, Tty: true, TerminalSizeQueue: sizes})
}

// sizes are ten, and then there is none for as long as the stream goes on.
type sizes struct {
	ctx   context.Context
	asked func() // called after the last; may be nil
	told  uint16
}

func (s *sizes) Next() *remotecommand.TerminalSize {
	if s.told++; s.told <= 10 {
		return &remotecommand.TerminalSize{Width: 80 + s.told, Height: 25}
	}
	if s.asked != nil {
		s.asked()
	}
	<-s.ctx.Done()
	return nil
}

// wantNoGoroutine ends the runtime by a signal that makes it tell of all its goroutines, and looks for those of a package: its tests, and only those,
// may have them. It is the last that is done with a node.
func (n *node) wantNoGoroutine(of string) {
	n.Helper()
	n.check(syscall.Kill(n.host.PID(), syscall.SIGQUIT))
	<-n.host.Died()
	all := strings.Split(n.host.Log(), "\ngoroutine ")
	if len(all) < 5 {
		n.Fatal("the runtime has not told of its goroutines")
	}
	for _, g := range all[1:] {
		if strings.Contains(g, of) && !strings.Contains(g, "Serve") && !strings.Contains(g, "sweep") {
			n.Errorf("a goroutine is left: %s", g)
		}
	}
}
