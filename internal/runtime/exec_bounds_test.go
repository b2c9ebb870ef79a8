package runtime_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxExecs is what docs/CRI.md promises.
const maxExecs = 256

// TestExecsAreBounded: as many commands as can be begun in one container keep nobody from looking, from another container's commands, or from
// stopping and removing theirs.
func TestExecsAreBounded(t *testing.T) {
	n := newNode(t)
	sb := n.run("greedy")
	greedy, other := n.launch(sb, shell("greedy", sleeper)), n.launch(sb, shell("other", sleeper))
	run := func(id string, cmd ...string) (*cri.ExecSyncResponse, error) {
		return n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd})
	}
	ended := make(chan error, maxExecs)
	for range maxExecs {
		go func() {
			for {
				// The look below may have the last place for a moment.
				if _, err := run(greedy, "sleep", "3605"); status.Code(err) != codes.ResourceExhausted {
					ended <- err
					return
				}
			}
		}()
	}
	n.eventually("one command too many to be refused", func() bool {
		_, err := run(greedy, "true")
		return status.Code(err) == codes.ResourceExhausted
	})
	_, err := run(greedy, "true")
	wantCode(t, err, codes.ResourceExhausted, greedy, "256", "end them")
	_, err = n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: greedy, Cmd: []string{"true"}, Stdout: true})
	wantCode(t, err, codes.ResourceExhausted, greedy)
	if resp, err := run(other, "echo", "here"); err != nil || string(resp.GetStdout()) != "here\n" {
		t.Errorf("another container's command: %v, %v", resp, err)
	}
	if _, err := n.rt.Status(n.ctx, &cri.StatusRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{}); err != nil {
		t.Error(err)
	}
	n.status(greedy)
	n.check(n.tryStop(greedy, 0))
	for range maxExecs {
		<-ended
	}
	n.remove(greedy)
	again := shell("greedy", sleeper)
	again.Metadata.Attempt = 1
	if got := n.exec(n.launch(sb, again), "echo", "again"); got != "again" {
		t.Errorf("a command of the next container: %q", got)
	}
}

// TestOutputsAreBounded: commands that print as much as is kept, many at once, cost this process a bounded memory, and others nothing.
func TestOutputsAreBounded(t *testing.T) {
	n := newNode(t)
	sb := n.run("loud")
	loud, other := n.launch(sb, shell("loud", sleeper)), n.launch(sb, shell("other", sleeper))
	const calls = 12
	type result struct {
		resp *cri.ExecSyncResponse
		err  error
	}
	results := make(chan result, calls)
	for range calls {
		go func() {
			resp, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: loud,
				Cmd: []string{"sh", "-c", "head -c 16777216 /dev/zero; echo >> /tmp/printed; while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 9"}})
			results <- result{resp, err}
		}()
	}
	n.eventually("all to have printed", func() bool {
		return strings.Count(n.exec(loud, "sh", "-c", "cat /tmp/printed 2>/dev/null | tr '\\n' x"), "x") == calls
	})
	for _, id := range []string{loud, other} {
		if got := n.exec(id, "seq", "1000"); !strings.HasSuffix(got, "\n1000") {
			t.Errorf("a command beside them printed %d bytes", len(got))
		}
	}
	n.exec(loud, "touch", "/tmp/go")
	whole, lost := 0, 0
	for range calls {
		r := <-results
		switch status.Code(r.err) {
		case codes.OK:
			whole++
			if len(r.resp.GetStdout()) < 16<<20-1<<10 || r.resp.GetExitCode() != 9 {
				t.Errorf("%d bytes, code %d", len(r.resp.GetStdout()), r.resp.GetExitCode())
			}
		default:
			lost++
			wantCode(t, r.err, codes.ResourceExhausted, loud, "code 9", "64 MiB", "Exec")
		}
	}
	if whole == 0 || whole > 4 || lost == 0 {
		t.Errorf("%d outputs were told, and %d lost; 64 MiB hold 4", whole, lost)
	}
	n.eventually("room for another one", func() bool {
		resp, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: loud, Cmd: []string{"head", "-c", "16777216", "/dev/zero"}})
		return err == nil && len(resp.GetStdout()) >= 16<<20-1<<10
	})
}
