//go:build cgo

package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/opencontainers/runc/libcontainer/exeseal"

	"monopod.dev/monopod/internal/executor/sealed"
)

// sealSelf goes on in a copy of this binary in memory that nobody can change. It returns, in the copy.
func sealSelf() error {
	if exeseal.IsSelfExeCloned() {
		return nil
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	copied, err := sealed.Copy(self)
	if err != nil {
		return fmt.Errorf("copy the binary to memory: %w", err)
	}
	path := sealed.Path(int(copied.Fd()))
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}

// nameProcess sets the name that ps shows, which after an execution by descriptor is a number. Without it things only
// look odd, so an error does not matter.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
