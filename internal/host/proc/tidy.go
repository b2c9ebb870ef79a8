package proc

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tidyEvery is how often Tidy looks.
	tidyEvery = 2 * time.Second
	// tidyQuiet is how much a program allocates between two looks, in bytes, that does nothing of note.
	tidyQuiet = 512 << 10
	// tidyGarbage is how much has to be allocated, in bytes, until a collection is worth it: of a heap of 20 MB one takes about 20 ms of a processor.
	tidyGarbage = 3 << 20
)

// Tidy gives back, until ctx ends, what the garbage collector keeps for the next work, each time the work is done: the collector alone lets the
// garbage of a burst stay for up to two minutes, and a heap at twice its size.
func Tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for last, tidied := uint64(0), uint64(0); ; {
		metrics.Read(heap)
		allocated := heap[0].Value.Uint64()
		if worthTidying(allocated-last, allocated-tidied) {
			debug.FreeOSMemory()
			tidied = allocated
		}
		last = allocated
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// worthTidying says whether to collect now: when so many bytes were allocated since the last look, and so many since the last collection of Tidy's.
func worthTidying(sinceLook, sinceTidy uint64) bool {
	return sinceLook < tidyQuiet && sinceTidy >= tidyGarbage
}
