//go:build cgo

package group

import (
	"slices"
	"sync"
	"testing"

	"github.com/opencontainers/cgroups"
)

func TestOOMKills(t *testing.T) {
	for in, want := range map[string]uint64{
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": 2, // v2
		"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n":               5, // v1
		"oom_kill_disable 0\n":                                        0,
		"":                                                            0,
	} {
		if got := oomKills([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

// managing is a manager of cgroups, of which only Set is called.
type managing struct {
	cgroups.Manager
	set func()
}

func (m managing) Set(*cgroups.Resources) error { m.set(); return nil }

// The first use of the library's managers ends before another one begins: they share what they find out, without a lock.
func TestFirstApplyIsAlone(t *testing.T) {
	found.done.Store(false)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var order []string // guarded by what is tested
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := Apply(managing{set: func() { close(entered); <-goOn; order = append(order, "first") }}, nil); err != nil {
			t.Error(err)
		}
	})
	<-entered
	for range 4 {
		wg.Go(func() {
			if err := Apply(managing{set: func() {
				if len(order) != 1 {
					t.Errorf("after %q, want it after the first", order)
				}
			}}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	close(goOn)
	wg.Wait()
	if !slices.Equal(order, []string{"first"}) {
		t.Errorf("%q", order)
	}
}
