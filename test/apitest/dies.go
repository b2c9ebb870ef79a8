package apitest

import (
	"errors"
	"sync"
	"sync/atomic"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// Dies has a part of the process die at a failpoint, of which died tells: from then on it fails there, and at the others, which are before whatever else it
// writes, so that it writes nothing any more. Whoever stops the part then leaves what a kill at the point leaves. revive lets the next one live.
func Dies(at string, others ...string) (died <-chan struct{}, revive func()) {
	var dead atomic.Bool
	ended := make(chan struct{})
	once := sync.OnceFunc(func() { close(ended) })
	dies := errors.New("it died at " + at)
	disarm := []func(){failpoint.Arm(at, func() error {
		dead.Store(true)
		once()
		return dies
	})}
	for _, other := range others {
		if other == at {
			continue
		}
		disarm = append(disarm, failpoint.Arm(other, func() error {
			if dead.Load() {
				return dies
			}
			return nil
		}))
	}
	return ended, func() {
		for _, d := range disarm {
			d()
		}
	}
}
