package container

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The range of real-time signals as C programs number them; SIGRTMIN+n is counted from the first that libc leaves free.
const (
	realTimeMin = 34
	realTimeMax = 64
)

// CRISignal is CRI's name for a signal. Some signals have two: then it is the one that was asked for.
func CRISignal(n int, asked cri.Signal) cri.Signal {
	if got, err := parseCRISignal(asked); err == nil && got == n {
		return asked
	}
	for i := range cri.Signal(len(cri.Signal_name)) {
		if got, err := parseCRISignal(i); err == nil && got == n {
			return i
		}
	}
	return cri.Signal_SIGNAL_RUNTIME_DEFAULT
}

// parseCRISignal reads one of CRI's signals; the runtime's default is none of them.
func parseCRISignal(s cri.Signal) (int, error) {
	name, ok := strings.CutPrefix(s.String(), "SIGNAL_SIG")
	if !ok {
		return 0, fmt.Errorf("no signal has this number")
	}
	return parseSignal(name)
}

// otherNames are the second names of signals.
var otherNames = map[string]unix.Signal{"SIGCLD": unix.SIGCHLD, "SIGPOLL": unix.SIGIO, "SIGIOT": unix.SIGABRT}

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
	if n, ok := otherNames[name]; ok {
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

// StopSignal is the signal of CRI's stop_signal, else the image's STOPSIGNAL, else SIGTERM. wrong says of the image's that it is none, which is no
// reason not to run it.
func StopSignal(cfg *cri.ContainerConfig, imageSignal string) (n int, wrong, err error) {
	name, asked := imageSignal, false
	if s := cfg.GetStopSignal(); s != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name, asked = strings.TrimPrefix(s.String(), "SIGNAL_"), true
	}
	n, err = parseSignal(strings.TrimSpace(name))
	switch {
	case err == nil:
		return n, nil, nil
	case !asked:
		return int(unix.SIGTERM), err, nil
	}
	return 0, nil, fmt.Errorf("stop signal %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
}
