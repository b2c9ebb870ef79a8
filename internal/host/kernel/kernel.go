// Package kernel says which kernel runs.
package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Release is that of the running kernel, as uname(2) has it: 6.1.0-18-cloud-amd64.
func Release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
