package usage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat: the kernel's USER_HZ is 100 on all machines that Go runs on.
const tick = uint64(time.Second / 100)

// parseStat reads the line of all processors, "cpu user nice system idle iowait irq softirq steal guest guest_nice" (a guest's time is the user's
// as well), and "btime".
func parseStat(raw string, m *Machine) error {
	for line := range strings.Lines(raw) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 8 && f[0] == "cpu":
			for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
				n, err := strconv.ParseUint(f[i], 10, 64)
				if err != nil {
					return err
				}
				m.CPU += n * tick
			}
		case len(f) == 2 && f[0] == "btime":
			seconds, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return err
			}
			m.Boot = time.Unix(seconds, 0)
		}
	}
	if m.CPU == 0 {
		return errors.New("it has no line of all processors")
	}
	return nil
}

// values reads lines "key value ..." into where the keys say, multiplied; a key may end in ":".
func values(raw string, times uint64, into map[string]*uint64) error {
	for line := range strings.Lines(raw) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if to := into[strings.TrimSuffix(f[0], ":")]; to != nil {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return err
			}
			*to = n * times
		}
	}
	return nil
}

func parseMeminfo(raw string, m *Machine) error {
	var free uint64
	err := values(raw, 1024, map[string]*uint64{
		"MemTotal": &m.Memory.Total, "MemFree": &free, "MemAvailable": &m.Memory.Available, "Inactive(file)": &m.Memory.InactiveFile, "AnonPages": &m.Memory.Anonymous,
		"SwapTotal": &m.Swap.Total, "SwapFree": &m.Swap.Free,
	})
	if err != nil {
		return err
	}
	if m.Memory.Total == 0 {
		return errors.New("it has no MemTotal")
	}
	m.Memory.Used = m.Memory.Total - min(m.Memory.Total, free)
	return nil
}

func parseVMStat(raw string, m *Machine) error {
	return values(raw, 1, map[string]*uint64{"pgfault": &m.PageFaults, "pgmajfault": &m.MajorPageFaults})
}

// parseLoad reads "0.20 0.18 0.12 1/80 11206": 80 threads.
func parseLoad(raw string, m *Machine) (err error) {
	f := strings.Fields(raw)
	if len(f) < 4 {
		return fmt.Errorf("%q has no number of threads", raw)
	}
	_, total, _ := strings.Cut(f[3], "/")
	m.Threads, err = strconv.ParseUint(total, 10, 64)
	return err
}

func parsePIDMax(raw string, m *Machine) (err error) {
	m.MaxThreads, err = strconv.ParseUint(strings.TrimSpace(raw), 10, 64)
	return err
}

// parseInterfaces reads /proc/net/dev: "eth0: bytes packets errs drop fifo frame compressed multicast", and the same eight of what was sent.
func parseInterfaces(raw string) (all []Interface) {
	for line := range strings.Lines(raw) {
		name, counters, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		f := strings.Fields(counters)
		if !ok || len(f) < 16 || name == "lo" || strings.HasPrefix(name, "veth") {
			continue
		}
		i := Interface{Name: name}
		bad := false
		for at, to := range map[int]*uint64{0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped, 8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrors, 11: &i.TxDropped} {
			n, err := strconv.ParseUint(f[at], 10, 64)
			*to, bad = n, bad || err != nil
		}
		if !bad {
			all = append(all, i)
		}
	}
	return all
}

// defaultRoute is the interface of the first route to everywhere in /proc/net/route; empty: there is none.
func defaultRoute(raw string) string {
	for line := range strings.Lines(raw) {
		if f := strings.Fields(line); len(f) >= 8 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// first puts the interface of a name before the others.
func first(all []Interface, name string) {
	if at := slices.IndexFunc(all, func(i Interface) bool { return i.Name == name }); at > 0 {
		chosen := all[at]
		copy(all[1:at+1], all[:at])
		all[0] = chosen
	}
}
