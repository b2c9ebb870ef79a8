package handlers

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shell is a runtime whose only container knows a few commands.
type shell struct {
	cri.UnimplementedRuntimeServiceServer
	asked *cri.ExecSyncRequest
}

func (s *shell) ExecSync(_ context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	s.asked = req
	switch req.Cmd[0] {
	case "fail":
		return &cri.ExecSyncResponse{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: 3}, nil
	case "flood":
		return &cri.ExecSyncResponse{Stdout: []byte(strings.Repeat("o", 1000)), Stderr: []byte(strings.Repeat("e", MaxOutput)), ExitCode: 1}, nil
	case "hang":
		return nil, status.Error(codes.DeadlineExceeded, "it took too long")
	case "absent":
		return nil, status.Error(codes.Unknown, "no such command")
	}
	return &cri.ExecSyncResponse{Stdout: []byte(strings.Join(req.Cmd, " "))}, nil
}

// runtime is a shell behind a socket, and a client of it that waits for a runtime that is away, as the agent's does.
func runtime(t *testing.T) (s *shell, r cri.RuntimeServiceClient, stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, s := grpc.NewServer(), &shell{}
	cri.RegisterRuntimeServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	stop = func() {
		server.Stop()
		<-ended
		ended <- nil
	}
	t.Cleanup(stop)
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return s, cri.NewRuntimeServiceClient(conn), stop
}

func TestExec(t *testing.T) {
	s, client, stop := runtime(t)
	h := New(CRI{client})
	on, _ := subject("127.0.0.1:80")
	on.Container.Env = []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "FROM", ValueFrom: &v1.EnvVarSource{}}}
	for _, c := range []struct {
		cmd    []string
		result Result
		output string
	}{
		{[]string{"say", "$(A) $(B) $$(A)", "$(FROM)"}, Success, "say a $(B) $(A) "},
		{[]string{"fail"}, Failure, "out\nerr\n"},
		{[]string{"flood"}, Failure, strings.Repeat("o", 1000) + strings.Repeat("e", MaxOutput-1000)},
		{[]string{"hang", "on"}, Failure, `command timed out: "hang on" timed out after 1m0s`},
		{[]string{"absent"}, Unknown, "rpc error: code = Unknown desc = no such command"},
	} {
		if a := h.Probe(t.Context(), on, &v1.ProbeHandler{Exec: &v1.ExecAction{Command: c.cmd}}, long); a.Result != c.result || a.Output != c.output {
			t.Errorf("%v is %v %.200q, want %v %.200q", c.cmd, a.Result, a.Output, c.result, c.output)
		}
		if s.asked.ContainerId != "id" || s.asked.Timeout != 60 {
			t.Errorf("the runtime was asked %v", s.asked)
		}
	}

	// A hook's command is not expanded, and has no time limit.
	hook := func(cmd ...string) Answer {
		return h.Hook(t.Context(), on, &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: cmd}})
	}
	if a := hook("say", "$(A)"); a.Result != Success || !slices.Equal(s.asked.Cmd, []string{"say", "$(A)"}) || s.asked.Timeout != 0 {
		t.Errorf("the hook is %v, the runtime was asked %v", a, s.asked)
	}
	want := `Exec lifecycle hook ([fail]) for Container "app" in Pod "p_ns(u)" failed - error: command 'fail' exited with 3: err` + "\n" + `, message: "out\nerr\n"`
	if a := hook("fail"); a.Result != Failure || a.Output != want {
		t.Errorf("the hook is %v, want %q", a, want)
	}
	want = `Exec lifecycle hook ([absent]) for Container "app" in Pod "p_ns(u)" failed - error: rpc error: code = Unknown desc = no such command, message: ""`
	if a := hook("absent"); a.Result != Failure || a.Output != want {
		t.Errorf("the hook is %v, want %q", a, want)
	}

	// A runtime that is away says nothing about the container, and is not waited for.
	stop()
	if a := h.Probe(t.Context(), on, &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"say"}}}, long); a.Result != Unknown {
		t.Errorf("without a runtime it is %v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := (CRI{client}).ExecSync(ctx, "id", []string{"say"}, long); err == nil || fmt.Sprint(status.Code(err)) != "Canceled" {
		t.Errorf("broken off it is %v", err)
	}
}
