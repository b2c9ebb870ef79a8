//go:build cgo

package native

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
)

func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{places: semaphore.NewWeighted(1), patience: time.Second, penance: time.Minute}
		var late lateness
		end, err := turns.take(t.Context(), &late)
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 20 {
			go func() {
				end, err := turns.take(t.Context(), &late)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // one has the turn at a time
				end()
			}()
			synctest.Wait() // it is in the queue
		}
		end()
		synctest.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("the turns went round as %v", order)
		}
	})
}

func TestStuckStartsKeepNobodyWaitingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{places: semaphore.NewWeighted(1), patience: time.Second, penance: time.Minute}
		var stuck, other lateness
		take := func(late *lateness, want time.Duration) (end func()) {
			t.Helper()
			begun := time.Now()
			end, err := turns.take(t.Context(), late)
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(begun); waited != want {
				t.Errorf("it waited for its turn for %s, want %s", waited, want)
			}
			return end
		}
		first := take(&stuck, 0)
		end := take(&other, time.Second)
		end()
		second := take(&stuck, 0) // without a turn
		end = take(&other, 0)
		take(&stuck, 0)() // without a turn, while another one has it
		end()
		first() // more than its turn has ended
		second()
		<-time.After(time.Minute)
		take(&stuck, 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		if _, err := turns.take(ctx, &other); !errors.Is(err, gone) {
			t.Errorf("whose caller is gone: %v", err)
		}
	})
}
