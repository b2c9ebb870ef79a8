package owned

import "sync"

// atATime is how many requests of one call are under way. The API server answers 200 that write at a time, everybody's together.
const atATime = 64

// AtOnce does something n times, up to 64 times at a time, and returns the error of the first one that failed when all have ended.
func AtOnce(n int, do func(i int) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	next, failed := 0, n
	for range min(n, atATime) {
		all.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for next < n {
				i := next
				next++
				mu.Unlock()
				err := do(i)
				mu.Lock()
				if err != nil && i < failed {
					first, failed = err, i
				}
			}
		})
	}
	all.Wait()
	return first
}
