package runtime

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
)

// readAtOnce is how many items of a list are read before the first of them is told: enough that no processor waits long for the slowest
// of them, and few beside what one message holds.
const readAtOnce = 64

// sideBySide reads each item and tells what was read, in the order of the items, until ctx ends; nothing is told of an item that read
// returns nil for. A list of statistics is little but system calls, a few dozen a container: so the processors share them. read is
// called from several goroutines, none of which is left when the sequence ends.
func sideBySide[T, R any](ctx context.Context, items []T, read func(*T) *R) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		var told [readAtOnce]*R
		for ; len(items) > 0 && ctx.Err() == nil; items = items[min(readAtOnce, len(items)):] {
			window := items[:min(readAtOnce, len(items))]
			var next atomic.Int32
			work := func() {
				for i := int(next.Add(1)) - 1; i < len(window) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
					told[i] = read(&window[i])
				}
			}
			var wg sync.WaitGroup
			for range min(runtime.GOMAXPROCS(0), len(window)) - 1 {
				wg.Go(work)
			}
			work()
			wg.Wait()
			if ctx.Err() != nil {
				return // the window may have holes
			}
			for i := range window {
				if told[i] != nil && !yield(told[i]) {
					return
				}
			}
		}
	}
}
