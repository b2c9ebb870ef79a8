package cli

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// IsTerminal says whether somebody types into f, or reads it.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// HumanSize is a number of bytes as people read it, in decimal units as docker has it.
func HumanSize(n uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	f, i := float64(n), 0
	for f >= 999.5 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 || f >= 99.5 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// HumanAge is how long ago t was, in one unit.
func HumanAge(t, now time.Time) string {
	if t.Unix() <= 0 { // also what builds that can be reproduced write
		return "-"
	}
	d := now.Sub(t)
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"year", 365 * 24 * time.Hour}, {"month", 30 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		switch n := int(d / u.d); {
		case n > 1:
			return fmt.Sprintf("%d %ss ago", n, u.name)
		case n == 1:
			return fmt.Sprintf("1 %s ago", u.name)
		}
	}
	return "just now"
}

// OrDash is a cell of a table, which is never empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Shorten leaves the begin and the end of a name, by which people know it.
func Shorten(s string, width int) string {
	const gap = "..."
	if len(s) <= width {
		return s
	}
	end := (width - len(gap)) / 3
	return s[:width-len(gap)-end] + gap + s[len(s)-end:]
}

// Count is a number of things, with an s where there are others than one.
func Count(n int, what string) string { return Plural(n, what, what+"s") }

// Plural is a number of things that have another word where there are others than one.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
