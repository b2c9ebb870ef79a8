package cgroup

import (
	"bytes"
	"slices"
	"strconv"
)

// unlimitedFrom is where cgroup v1's "no limit" begins: the greatest number of pages, in bytes.
const unlimitedFrom = 1 << 62

// parseNumber reads the one number of a control file; "max" and what v1 writes instead are Unlimited.
func parseNumber(raw []byte) (uint64, bool) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "max" || string(raw) == "-1" {
		return Unlimited, true
	}
	n, ok := digits(raw)
	if ok && n >= unlimitedFrom {
		return Unlimited, true
	}
	return n, ok
}

// digits is strconv.ParseUint without the string.
func digits(raw []byte) (n uint64, ok bool) {
	if len(raw) == 0 {
		return 0, false
	}
	for _, c := range raw {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// eachPair calls f for each line "key number"; other lines are left out.
func eachPair(raw []byte, f func(key []byte, n uint64)) {
	for len(raw) > 0 {
		line, rest, _ := bytes.Cut(raw, []byte{'\n'})
		raw = rest
		key, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		if n, ok := digits(bytes.TrimSpace(value)); ok {
			f(key, n)
		}
	}
}

// parsePressure reads a PSI file. It is nil when not even the line "some" can be read.
func parsePressure(raw []byte) *Pressure {
	var p Pressure
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		s, ok := parseStall(f[1:])
		switch {
		case !ok:
		case string(f[0]) == "some":
			p.Some = &s
		case string(f[0]) == "full":
			p.Full = &s
		}
	}
	if p.Some == nil {
		return nil
	}
	return &p
}

// parseStall reads "avg10=0.12 avg60=0.06 avg300=0.00 total=1234".
func parseStall(fields [][]byte) (s Stall, ok bool) {
	seen := 0
	for _, f := range fields {
		key, value, _ := bytes.Cut(f, []byte{'='})
		var into *float64
		switch string(key) {
		case "avg10":
			into = &s.Avg10
		case "avg60":
			into = &s.Avg60
		case "avg300":
			into = &s.Avg300
		case "total":
			n, ok := digits(value)
			if !ok {
				return s, false
			}
			s.Total = n
			seen++
			continue
		default:
			continue
		}
		x, err := strconv.ParseFloat(string(value), 64)
		if err != nil || !(x >= 0 && x <= 1e6) { // no NaN either
			return s, false
		}
		*into = x
		seen++
	}
	return s, seen == 4
}

// parseDevice reads "8:16".
func parseDevice(raw []byte) (major, minor uint64, ok bool) {
	a, b, found := bytes.Cut(raw, []byte{':'})
	major, ok1 := digits(a)
	minor, ok2 := digits(b)
	return major, minor, found && ok1 && ok2
}

// device returns the entry of a device, which is added when it is missing.
func device(all []DeviceIO, major, minor uint64) ([]DeviceIO, *DeviceIO) {
	i := slices.IndexFunc(all, func(d DeviceIO) bool { return d.Major == major && d.Minor == minor })
	if i < 0 {
		i = len(all)
		all = append(all, DeviceIO{Major: major, Minor: minor})
	}
	return all, &all[i]
}

// parseIOStat reads v2's io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0", a line a device.
func parseIOStat(raw []byte) (all []DeviceIO) {
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		major, minor, ok := parseDevice(f[0])
		if !ok {
			continue
		}
		var d *DeviceIO
		all, d = device(all, major, minor)
		for _, pair := range f[1:] {
			key, value, _ := bytes.Cut(pair, []byte{'='})
			n, ok := digits(value)
			if !ok {
				continue
			}
			switch string(key) {
			case "rbytes":
				d.ReadBytes = n
			case "wbytes":
				d.WriteBytes = n
			case "rios":
				d.Reads = n
			case "wios":
				d.Writes = n
			}
		}
	}
	return all
}

// parseBlkio reads one of v1's files: "8:0 Read 512", a line a device and operation. bytes says that it counts bytes, else
// operations.
func parseBlkio(raw []byte, inBytes bool, all []DeviceIO) []DeviceIO {
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue // the last line: "Total 512"
		}
		major, minor, ok := parseDevice(f[0])
		n, isNumber := digits(f[2])
		op := string(f[1])
		if !ok || !isNumber || op != "Read" && op != "Write" {
			continue
		}
		var d *DeviceIO
		all, d = device(all, major, minor)
		switch {
		case inBytes && op == "Read":
			d.ReadBytes = n
		case inBytes:
			d.WriteBytes = n
		case op == "Read":
			d.Reads = n
		default:
			d.Writes = n
		}
	}
	return all
}

// parseCPUMax reads v2's cpu.max: "max 100000" or "50000 100000".
func parseCPUMax(raw []byte) (quota, period uint64, ok bool) {
	f := bytes.Fields(raw)
	if len(f) != 2 {
		return 0, 0, false
	}
	quota, ok = parseNumber(f[0])
	period, ok2 := digits(f[1])
	return quota, period, ok && ok2
}
