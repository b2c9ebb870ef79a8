package probe

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// inThrowaway calls f on a thread that has namespaces of its own of the kinds in flags. They end, with all that f made in
// them, together with the thread: that is at f's return, or at the process's end.
func inThrowaway(flags int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and it is what /proc/self shows: its namespaces must stay. While it is held
			// here, another thread is found for the same.
			defer runtime.UnlockOSThread()
			result <- inThrowaway(flags, f)
			return
		}
		if err := unix.Unshare(flags); err != nil {
			result <- fmt.Errorf("unshare: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
