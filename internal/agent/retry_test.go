package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/fake"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/source"
	"monopod.dev/monopod/test/crifake"
)

// TestTheLookAroundIsRepeated: a look at what the runtime holds that has failed is not put off to the next time that somebody tells of a change.
func TestTheLookAroundIsRepeated(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	dir, err := os.MkdirTemp("/tmp", "mpl") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rt := crifake.Start(t, filepath.Join(dir, "cri.sock"))
	log := slog.New(slog.DiscardHandler)
	client, err := cri.Dial(cri.Config{Socket: rt.Socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	rt.Fail("ListPodSandbox", status.Error(codes.Internal, "not now"))
	p := newRoster(rosterConfig{Source: source.FromAPI(fake.NewClientset(), "node"), Runtime: client, Watchers: newWatchers(), Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.lookAround(ctx) }()
	for end := time.Now().Add(patience); rt.Queries.Load() < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the runtime was asked %d times", rt.Queries.Load())
		}
	}
	cancel()
	<-done
}
