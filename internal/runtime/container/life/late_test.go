package life

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// TestLate: what cannot be taken in is tried again until it can be, the latest of each container.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex // guards what follows
		full, taken := true, map[ids.ContainerID]protocol.Phase{}
		l := newLate()
		go l.run(ctx, func(s protocol.ContainerState) error {
			mu.Lock()
			defer mu.Unlock()
			if full {
				return errors.New("no space left on device")
			}
			taken[s.ID] = s.Phase
			return nil
		}, slog.New(slog.DiscardHandler))
		l.add(protocol.ContainerState{ID: "a", Phase: protocol.Running})
		l.add(protocol.ContainerState{ID: "b", Phase: protocol.Running})
		synctest.Wait()
		l.add(protocol.ContainerState{ID: "a", Phase: protocol.Exited})
		time.Sleep(5 * lateAgain)
		synctest.Wait()
		if len(taken) != 0 {
			t.Errorf("taken in %v", taken)
		}
		mu.Lock()
		full = false
		mu.Unlock()
		time.Sleep(2 * lateAgain)
		synctest.Wait()
		if len(taken) != 2 || taken["a"] != protocol.Exited || taken["b"] != protocol.Running || len(l.states) != 0 {
			t.Errorf("taken in %v, left %v", taken, l.states)
		}
		l.add(protocol.ContainerState{ID: "c", Phase: protocol.Exited})
		synctest.Wait()
		if taken["c"] != protocol.Exited {
			t.Errorf("taken in %v", taken)
		}
	})
}
