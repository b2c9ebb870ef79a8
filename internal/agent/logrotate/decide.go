package logrotate

import (
	"slices"
	"strings"
	"time"
)

// stampLayout is the suffix of a file that was moved away, in local time: the kubelet's.
const stampLayout = "20060102-150405"

// Suffixes of compressed files, and of those that are being written.
const (
	compressed = ".gz"
	unfinished = ".tmp"
)

// steps are what is done to rotate a log, in this order.
type steps struct {
	// remove are files that are too many, or that a rotation cut short has left, compress are to be compressed.
	remove, compress []string
	// name is what the present file becomes.
	name string
}

// decide says how the log of that name is rotated. names are all files of its folder; keep is how many files there may be, the present one included.
func decide(base string, names []string, keep int, now time.Time) (s steps) {
	var old []string
	for _, name := range names {
		stamp, of := strings.CutPrefix(name, base+".")
		plain := strings.TrimSuffix(strings.TrimSuffix(stamp, unfinished), compressed)
		switch {
		case !of || !isStamp(plain):
			// Somebody else's.
		case strings.HasSuffix(stamp, unfinished), stamp == plain && slices.Contains(names, name+compressed):
			s.remove = append(s.remove, name)
		default:
			old = append(old, name)
		}
	}
	slices.Sort(old)
	s.name = base + "." + nextStamp(base, old, now)
	// The present file becomes one of the old ones, and another one takes its place.
	if many := len(old) - max(keep-2, 0); many > 0 {
		s.remove = append(s.remove, old[:many]...)
		old = old[many:]
	}
	for _, name := range old {
		if !strings.HasSuffix(name, compressed) {
			s.compress = append(s.compress, name)
		}
	}
	slices.Sort(s.remove)
	return s
}

// newest is the last file that was moved away, if it is not compressed yet; empty: there is none.
func newest(base string, names []string) (name string) {
	for _, n := range names {
		if stamp, of := strings.CutPrefix(n, base+"."); of && isStamp(stamp) && n > name && !slices.Contains(names, n+compressed) {
			name = n
		}
	}
	return name
}

func isStamp(s string) bool {
	_, err := time.Parse(stampLayout, s)
	return err == nil && len(s) == len(stampLayout)
}

// nextStamp is the time now, or where a file has that name or a later one (the clock was put back), the second after the newest one: no file takes another
// one's place, and names only ever grow.
func nextStamp(base string, old []string, now time.Time) string {
	stamp := now.Local().Format(stampLayout)
	if len(old) == 0 {
		return stamp
	}
	last := strings.TrimSuffix(strings.TrimPrefix(old[len(old)-1], base+"."), compressed)
	if stamp > last {
		return stamp
	}
	t, err := time.Parse(stampLayout, last)
	if err != nil {
		return stamp
	}
	return t.Add(time.Second).Format(stampLayout)
}
