//go:build cgo

package spawn

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an operating system thread that nothing else runs on, and that ends with it: f may change the thread's
// namespaces, root and credentials. f must not wait for anything but the kernel.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end, and /proc/self speaks of it. It is kept busy, so that f gets another.
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}
