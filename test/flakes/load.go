package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// burnCommand is this program's argument when it is the load.
const burnCommand = "burn"

// load is a process beside the tests that keeps all processors busy, and a disk.
type load struct {
	cmd *exec.Cmd
	end io.Closer
}

// startLoad starts the load. It ends with stop, and with this process however that ends: its standard input is closed then.
func startLoad() (*load, error) {
	cmd := exec.Command("/proc/self/exe", burnCommand)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load: %w", err)
	}
	return &load{cmd: cmd, end: in}, nil
}

func (l *load) stop() error {
	l.end.Close()
	if err := l.cmd.Wait(); err != nil {
		return fmt.Errorf("the load: %w", err)
	}
	return nil
}

// burn is the load. It never returns.
func burn() {
	for range runtime.NumCPU() {
		go func() {
			for { //nolint:staticcheck // it burns, by intent
			}
		}()
	}
	go churn(os.TempDir())
	_, _ = io.Copy(io.Discard, os.Stdin) // until nobody has the other end
	os.Exit(0)
}

// churn writes and syncs a file again and again that nobody else sees. A full disk makes it rest at the next write, and fails no test.
func churn(dir string) {
	f, err := os.CreateTemp(dir, "monopod-flakes-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/flakes: no load on a disk:", err)
		return
	}
	_ = os.Remove(f.Name())
	defer f.Close()
	for block := make([]byte, 1<<20); ; {
		for at := range int64(4) {
			if _, err := f.WriteAt(block, at<<20); err != nil {
				return
			}
		}
		if err := f.Sync(); err != nil {
			return
		}
	}
}
