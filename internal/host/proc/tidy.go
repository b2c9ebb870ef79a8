package proc

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"monopod.dev/monopod/internal/kit/coalesce"
)

const (
	// tidyEvery is about how often Tidy looks.
	tidyEvery = 2 * time.Second
	// tidyQuiet is how much a program allocates between two looks, in bytes, that does nothing of note.
	tidyQuiet = 512 << 10
	// tidyGarbage is how much has to be allocated, in bytes, until a collection is worth it: of a heap of 20 MB one takes about 20 ms of a processor.
	tidyGarbage = 3 << 20
	// slimQuiet is for how many looks nothing of note has to be done until the code is given back: what is needed again is faulted in.
	slimQuiet = 5
	// slimWork is how much has to have been allocated, in bytes, since that was done. The first time it is done anyhow: a program that is ready
	// goes on to start for a moment.
	slimWork = 64 << 20
)

// Tidy gives back, until ctx ends, what the garbage collector keeps for the next work, each time the work is done: the collector alone lets the
// garbage of a burst stay for up to two minutes, and a heap at twice its size.
//
// room is how much garbage, in bytes, may be made between two collections while there is work, even if less than that is in use: the collector itself,
// which lets as much be made as is in use, takes a small heap through many collections a second. With room, the code that the work has needed is given back as well (Slim), some time after
// it. 0 leaves both as they are.
func Tidy(ctx context.Context, room uint64) {
	look := time.NewTimer(0)
	defer look.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	pace, quiet := defaultPace, 0
	for last, tidied, slimmed := uint64(0), uint64(0), uint64(0); ; {
		look.Reset(coalesce.Align(tidyEvery))
		metrics.Read(heap)
		allocated := heap[0].Value.Uint64()
		// It is changed only if that makes a difference: everything stops for it.
		if next := paceOf(heap[1].Value.Uint64(), room); room > 0 && (next > pace*5/4 || next < pace*4/5) {
			debug.SetGCPercent(next)
			pace = next
		}
		if quiet++; allocated-last >= tidyQuiet {
			quiet = 0
		}
		switch {
		case room > 0 && quiet >= slimQuiet && (slimmed == 0 || allocated-slimmed >= slimWork):
			_ = Slim() // else the code stays where it is, which the kernel can take, too
			slimmed, tidied = allocated, allocated
		case worthTidying(allocated-last, allocated-tidied):
			debug.FreeOSMemory()
			tidied = allocated
		}
		last = allocated
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// defaultPace and maxPace are how much garbage may be made between two collections, in percent of what is in use.
const defaultPace, maxPace = 100, 400

// paceOf is the pace for a heap of which so many bytes are in use.
func paceOf(live, room uint64) int {
	return int(min(max(room*100/max(live, 1), defaultPace), maxPace))
}

// worthTidying says whether to collect now: when so many bytes were allocated since the last look, and so many since the last collection of Tidy's.
func worthTidying(sinceLook, sinceTidy uint64) bool {
	return sinceLook < tidyQuiet && sinceTidy >= tidyGarbage
}
