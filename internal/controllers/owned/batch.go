package owned

import "sync"

// SlowStart does something n times: once, then twice at a time, then four times, and so on. It ends with the batch in which something failed, so that what
// always fails (a quota that is used up) is not tried hundreds of times.
func SlowStart(n int, do func(i int) error) error {
	for done, batch := 0, 1; done < n; done, batch = done+batch, 2*batch {
		batch = min(batch, n-done)
		if err := AtOnce(batch, func(i int) error { return do(done + i) }); err != nil {
			return err
		}
	}
	return nil
}

// AtOnce does something n times at the same time and returns the first error, when all have ended.
func AtOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
