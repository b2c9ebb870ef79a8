package ns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a thread that has joined the namespace at the path (of any kind but User), and ends the thread afterwards. What f opens (a
// socket, say) keeps belonging to that namespace; goroutines that f starts run outside of it.
func Run(path string, kind Kind, f func() error) error {
	return onThread(func() error {
		if err := join(path, kind); err != nil {
			return err
		}
		return f()
	})
}

// join moves the calling thread into a namespace.
func join(path string, kind Kind) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open %s namespace: %w", kind, err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), kind.cloneFlag()); err != nil {
		return fmt.Errorf("join the %s namespace %s: %w", kind, path, err)
	}
	return nil
}

// onThread calls f on an operating system thread that runs nothing else and ends with f, so that f may change the
// thread's namespaces.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The process's first thread cannot end before the process does, and it is what /proc/PID/ns shows. It
			// stands aside: locked to this goroutine, it cannot be the one that runs f.
			err := onThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		// It stays locked: Go ends a thread whose goroutine returns while locked to it.
		done <- f()
	}()
	return <-done
}
