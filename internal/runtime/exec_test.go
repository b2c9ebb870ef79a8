package runtime_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExecSync(t *testing.T) {
	n := newNode(t)
	sb := n.run("exec")
	id := n.launch(sb, shell("c", sleeper))
	run := func(timeout int64, cmd ...string) (*cri.ExecSyncResponse, time.Duration, error) {
		begin := time.Now()
		resp, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
		return resp, time.Since(begin), err
	}
	resp, _, err := run(0, "sh", "-c", "echo out; echo err >&2; exit 7")
	if err != nil || string(resp.GetStdout()) != "out\n" || string(resp.GetStderr()) != "err\n" || resp.GetExitCode() != 7 {
		t.Errorf("%v, %v", resp, err)
	}
	t.Run("time-out kills", func(t *testing.T) {
		_, took, err := run(1, "sh", "-c", "exec sleep 3601")
		wantCode(t, err, codes.DeadlineExceeded, id, "1s")
		if took > patience()/2 {
			t.Errorf("took %v", took)
		}
		n.eventually("the command to be killed", func() bool { return !strings.Contains(n.exec(id, "ps"), "sleep 3601") })
	})
	t.Run("time-out kills what the command waits for", func(t *testing.T) {
		_, _, err := run(1, "sh", "-c", "sleep 3604; true")
		wantCode(t, err, codes.DeadlineExceeded)
		n.eventually("it to be killed", func() bool { return !strings.Contains(n.exec(id, "ps"), "sleep 3604") })
	})
	t.Run("a grandchild keeps the pipe", func(t *testing.T) {
		resp, took, err := run(0, "sh", "-c", "echo said; sleep 3602 & exit 3")
		if err != nil || string(resp.GetStdout()) != "said\n" || resp.GetExitCode() != 3 || took > patience()/2 {
			t.Errorf("%v, %v after %v", resp, err, took)
		}
	})
	t.Run("a grandchild prints for ever", func(t *testing.T) {
		resp, took, err := run(0, "sh", "-c", "yes & exit 4")
		if err != nil || resp.GetExitCode() != 4 || took > patience()/2 {
			t.Errorf("code %d, %v after %v", resp.GetExitCode(), err, took)
		}
		n.eventually("the printer to get SIGPIPE", func() bool { return !strings.Contains(n.exec(id, "ps"), "yes") })
	})
	t.Run("more than a message holds", func(t *testing.T) {
		const message = 16 << 20
		for _, c := range []struct {
			script   string
			out, err int // at least
		}{
			{"head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2", message/2 - 1<<10, message/2 - 1<<10},
			{"head -c 20000000 /dev/zero; head -c 1000000 /dev/zero >&2", message - 1000000 - 1<<10, 1000000},
			{"head -c 20000000 /dev/zero >&2", 0, message - 1<<10},
		} {
			resp, _, err := run(0, "sh", "-c", c.script+"; echo done >> /tmp/done")
			if err != nil || resp.GetExitCode() != 0 || len(resp.GetStdout()) < c.out || len(resp.GetStderr()) < c.err || len(resp.GetStdout())+len(resp.GetStderr()) > message {
				t.Errorf("%s: %d and %d bytes, %v", c.script, len(resp.GetStdout()), len(resp.GetStderr()), err)
			}
		}
		if n.exec(id, "cat", "/tmp/done") != "done\ndone\ndone" {
			t.Error("the command was cut short")
		}
	})
	t.Run("a negative time-out is none", func(t *testing.T) {
		if resp, _, err := run(-1, "echo", "here"); err != nil || string(resp.GetStdout()) != "here\n" {
			t.Errorf("%v, %v", resp, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		_, _, err := run(0)
		wantCode(t, err, codes.InvalidArgument, "cmd")
		_, _, err = run(0, "/no/such")
		wantCode(t, err, codes.InvalidArgument, "/no/such", "no such file")
		_, _, err = run(0, "no-such")
		wantCode(t, err, codes.InvalidArgument, "no-such", "$PATH")
		_, _, err = run(0, "/etc/passwd")
		wantCode(t, err, codes.InvalidArgument, "/etc/passwd", "denied")
		created := n.create(sb, shell("created", sleeper))
		_, err = n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: created, Cmd: []string{"true"}})
		wantCode(t, err, codes.FailedPrecondition, created, "CREATED")
	})
	t.Run("binary", func(t *testing.T) {
		resp, _, err := run(0, "head", "-c", "100000", "/bin/busybox")
		if err != nil || len(resp.GetStdout()) != 100000 || !bytes.HasPrefix(resp.GetStdout(), []byte("\x7fELF")) {
			t.Errorf("%d bytes, %v", len(resp.GetStdout()), err)
		}
	})
}
