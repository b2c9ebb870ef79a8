package stream

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
)

const (
	// maxExecs bounds the commands that run in a container beside its own program, however they were started. The executor serves 4096
	// calls at a time, and one container must not have them all, with what they cost of processes, pipes and memory.
	maxExecs = 256
	// ownExecs is how many commands each container may have whatever others have, and maxShared what all have beyond that: so one pod of many containers, each with as
	// many as it may, takes neither the executor's calls nor the descriptors, of which each command costs half a dozen, from the rest of the node.
	ownExecs  = 16
	maxShared = 1024

	// ownRoom is what each Run may keep of its command's output, in bytes, whatever others keep. It is enough for 32 KiB of both streams, with
	// the buffers that grow; probes need no more.
	ownRoom = 64 << 10
	// maxHeld bounds what all Runs keep beyond that, and maxHeldOfContainer what those of one container do: four streams of the greatest
	// size. So one container that prints much makes neither this process large nor the Runs of others fail.
	maxHeld            = 4 * maxHeldOfContainer
	maxHeldOfContainer = 4 * maxStream
)

// bounds counts what commands take, by container. The zero value is ready to use.
type bounds struct {
	mu    sync.Mutex
	execs map[ids.ContainerID]int
	// shared is the sum of execs beyond each container's own.
	shared int
	held   map[ids.ContainerID]int // bytes beyond the Runs' own room
	all    int                     // the sum of held
}

// begin counts a command, until end is called. It is errdefs.ErrResourceExhausted when the container has too many.
func (b *bounds) begin(container ids.ContainerID) (end func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.room(container); err != nil {
		return nil, err
	}
	if b.execs == nil {
		b.execs = map[ids.ContainerID]int{}
	}
	if b.execs[container]++; b.execs[container] > ownExecs {
		b.shared++
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.execs[container] > ownExecs {
			b.shared--
		}
		if b.execs[container]--; b.execs[container] == 0 {
			delete(b.execs, container)
		}
	}, nil
}

// room fails when no further command may begin. The caller holds mu.
func (b *bounds) room(container ids.ContainerID) error {
	has := b.execs[container]
	if has < ownExecs || has < maxExecs && b.shared < maxShared {
		return nil
	}
	if has < maxExecs {
		return fmt.Errorf("%d commands are under way in container %s, and on the whole node %d more than the %d that each container may have in any case: wait until some have ended, or end them: %w",
			has, container, b.shared, ownExecs, errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("%d commands are under way in container %s, which is as many as one may have at a time: wait until some have ended, or end them: %w",
		maxExecs, container, errdefs.ErrResourceExhausted)
}

// account is what one Run keeps of its command's output, in bytes.
type account struct {
	bounds    *bounds
	container ids.ContainerID
	held      int // guarded by bounds.mu
}

// take counts bytes that are to be kept, and says no when there is no room for them.
func (a *account) take(n int) bool {
	b := a.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	more := beyond(a.held+n) - beyond(a.held)
	if b.all+more > maxHeld || b.held[a.container]+more > maxHeldOfContainer {
		return false
	}
	a.add(n, more)
	return true
}

// give stops counting bytes that are no longer kept.
func (a *account) give(n int) {
	a.bounds.mu.Lock()
	defer a.bounds.mu.Unlock()
	a.add(-n, beyond(a.held-n)-beyond(a.held))
}

// close stops counting all of them.
func (a *account) close() {
	a.bounds.mu.Lock()
	defer a.bounds.mu.Unlock()
	a.add(-a.held, -beyond(a.held))
}

func (a *account) add(n, more int) {
	b := a.bounds
	a.held += n
	if more == 0 {
		return
	}
	if b.held == nil {
		b.held = map[ids.ContainerID]int{}
	}
	b.all += more
	if b.held[a.container] += more; b.held[a.container] == 0 {
		delete(b.held, a.container)
	}
}

// beyond is how much of what a Run keeps is not in its own room.
func beyond(held int) int { return max(0, held-ownRoom) }
