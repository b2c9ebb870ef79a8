package container

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The range of real-time signals as C programs number them; SIGRTMIN+n is counted from the first that libc leaves free.
const (
	realTimeMin = 34
	realTimeMax = 64
)

// parseSignal reads a signal as images and CRI write it: "SIGTERM", "TERM", "15", "SIGRTMIN+3" or CRI's "SIGRTMINPLUS3". None is
// SIGTERM.
func parseSignal(name string) (int, error) {
	if name == "" {
		return int(unix.SIGTERM), nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > realTimeMax {
			return 0, fmt.Errorf("signals go from 1 to %d", realTimeMax)
		}
		return n, nil
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int(n), nil
	}
	name = strings.NewReplacer("MINPLUS", "MIN+", "MAXMINUS", "MAX-").Replace(name)
	base, limit := realTimeMin, strings.TrimPrefix(name, "SIGRTMIN")
	if strings.HasPrefix(name, "SIGRTMAX") {
		base, limit = realTimeMax, strings.TrimPrefix(name, "SIGRTMAX")
	}
	if limit == name {
		return 0, fmt.Errorf("no signal has this name")
	}
	offset := 0
	if limit != "" {
		var err error
		if offset, err = strconv.Atoi(limit); err != nil {
			return 0, fmt.Errorf("no signal has this name")
		}
	}
	if n := base + offset; n >= realTimeMin && n <= realTimeMax {
		return n, nil
	}
	return 0, fmt.Errorf("real-time signals go from %d to %d", realTimeMin, realTimeMax)
}
