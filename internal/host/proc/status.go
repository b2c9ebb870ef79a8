package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Unlimited is a resource limit that is none.
const Unlimited = 1<<64 - 1

// Limit is a resource limit, soft and hard.
type Limit struct{ Soft, Hard uint64 }

// MaxOpenFiles is the kernel's name of the limit of open files, in /proc/PID/limits.
const MaxOpenFiles = "Max open files"

// Limits returns a process's resource limits by the kernel's names. One that has ended is errdefs.ErrNotFound.
func Limits(pid int) (map[string]Limit, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil, ended(pid, err)
	}
	return parseLimits(string(raw)), nil
}

// parseLimits reads lines such as "Max open files            1024                 524288               files". The name fills
// 25 columns; lines that are not so are left out.
func parseLimits(raw string) map[string]Limit {
	const nameWidth = 25
	all := map[string]Limit{}
	for line := range strings.Lines(raw) {
		if len(line) <= nameWidth {
			continue
		}
		name, f := strings.TrimSpace(line[:nameWidth]), strings.Fields(line[nameWidth:])
		if len(f) < 2 {
			continue
		}
		soft, ok1 := parseLimit(f[0])
		hard, ok2 := parseLimit(f[1])
		if ok1 && ok2 && name != "" {
			all[name] = Limit{Soft: soft, Hard: hard}
		}
	}
	return all
}

func parseLimit(s string) (uint64, bool) {
	if s == "unlimited" {
		return Unlimited, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// Security is what a process may do, as /proc/PID/status and /proc/PID/oom_score_adj tell. Capabilities are bit sets.
type Security struct {
	Inheritable, Permitted, Effective, Bounding, Ambient uint64
	NoNewPrivs                                           bool
	// Seccomp is 0 for none, 2 for a filter.
	Seccomp     int
	OOMScoreAdj int
}

// ReadSecurity tells what a process may do. One that has ended is errdefs.ErrNotFound.
func ReadSecurity(pid int) (Security, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Security{}, ended(pid, err)
	}
	s, err := parseSecurity(raw)
	if err != nil {
		return Security{}, fmt.Errorf("status of process %d: %w", pid, err)
	}
	raw, err = os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return Security{}, ended(pid, err)
	}
	s.OOMScoreAdj, err = strconv.Atoi(string(bytes.TrimSpace(raw)))
	return s, err
}

func parseSecurity(raw []byte) (s Security, err error) {
	sets := map[string]*uint64{"CapInh": &s.Inheritable, "CapPrm": &s.Permitted, "CapEff": &s.Effective, "CapBnd": &s.Bounding, "CapAmb": &s.Ambient}
	found := 0
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch set := sets[key]; {
		case set != nil:
			if *set, err = strconv.ParseUint(value, 16, 64); err != nil {
				return s, fmt.Errorf("%s %q: %w", key, value, err)
			}
			found++
		case key == "NoNewPrivs":
			s.NoNewPrivs = value == "1"
		case key == "Seccomp":
			if s.Seccomp, err = strconv.Atoi(value); err != nil {
				return s, fmt.Errorf("%s %q: %w", key, value, err)
			}
		}
	}
	if found < len(sets) {
		return s, fmt.Errorf("%d sets of capabilities, want %d: %w", found, len(sets), errdefs.ErrUnknown)
	}
	return s, nil
}
