package nodeusage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// clockwork is an agent that has used half a processor since 1970.
func clockwork(asked *atomic.Int64) func(context.Context, string) ([]byte, error) {
	return func(ctx context.Context, node string) ([]byte, error) {
		asked.Add(1)
		switch node {
		case "hangs":
			<-ctx.Done()
			return nil, ctx.Err()
		case "fails":
			return nil, errors.New("no")
		}
		now := time.Now()
		return []byte(fmt.Sprintf("node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 5\n", float64(now.UnixMilli())/2000, now.UnixMilli())), nil
	}
}

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := New(Config{Fetch: clockwork(&asked), Log: slog.New(slog.DiscardHandler)})
		defer s.Close()
		ask := func(asks int64, window time.Duration) {
			t.Helper()
			before := asked.Load()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					u, err := s.Of(t.Context(), "n")
					if err != nil || u.Node == nil || u.Node.Window != window || u.Node.NanoCores < 4999e5 || u.Node.NanoCores > 5001e5 {
						t.Errorf("%+v, %v, want a window of %s", u, err, window)
					}
				})
			}
			wg.Wait()
			if n := asked.Load() - before; n != asks {
				t.Errorf("the agent was asked %d times, want %d", n, asks)
			}
		}
		ask(2, usualApart)
		ask(0, usualApart) // it holds
		<-time.After(15 * time.Second)
		ask(1, 15*time.Second)
		<-time.After(time.Hour)
		ask(2, usualApart) // the last one is too old
	})
}

func TestAgentsThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := New(Config{Fetch: clockwork(&asked), Log: slog.New(slog.DiscardHandler)})
		defer s.Close()
		for node, most := range map[string]time.Duration{"hangs": usualPatience, "fails": 0} {
			begin := time.Now()
			if _, err := s.Of(t.Context(), node); err == nil || time.Since(begin) > most {
				t.Errorf("%s: %v after %s", node, err, time.Since(begin))
			}
			begin = time.Now()
			if _, err := s.Of(t.Context(), node); err == nil || time.Since(begin) > 0 {
				t.Errorf("%s again: %v after %s", node, err, time.Since(begin))
			}
		}
		// Who goes is not kept.
		<-time.After(time.Minute)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Of(impatient, "hangs"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who goes is told %v", err)
		}
	})
}
