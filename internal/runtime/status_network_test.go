package runtime

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// hanging is a network whose Status takes its time, as one of CNI plugins may.
type hanging struct {
	Network
	takes chan time.Duration
}

func (h *hanging) Status(ctx context.Context) error {
	select {
	case <-time.After(<-h.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A network that hangs holds Status up for two seconds, and is told to be not ready after five.
func TestNetworkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{takes: make(chan time.Duration, 2)}
		p := watchNetwork(h)
		h.takes <- time.Second
		begin := time.Now()
		if err := p.Check(t.Context()); err != nil || time.Since(begin) != time.Second {
			t.Errorf("a slow network: %v after %v", err, time.Since(begin))
		}
		h.takes <- time.Hour
		begin = time.Now()
		if err := p.Check(t.Context()); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("the last answer was good: %v after %v", err, time.Since(begin))
		}
		time.Sleep(3 * time.Second)
		if err := p.Check(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("after five seconds: %v", err)
		}
		time.Sleep(time.Minute)
		h.takes <- 0
		if err := p.Check(t.Context()); err != nil {
			t.Errorf("it answers again: %v", err)
		}
	})
}
