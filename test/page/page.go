// Package page reads what a page of documentation has people type, with what comes back, and holds it against what really does.
//
// A block of lines that are indented by four spaces is a session if its first line begins with "$ ". In it
//
//	$ COMMAND   is typed into a shell;
//	> MORE      goes on with the command before;
//	other lines are what the command prints. A line that is "..." stands for any number of lines, "..." in a line for any text.
//
// What differs from one machine to another need not be left out: addresses, node ports, times, sizes, and the ends of the names of pods count as equal to any others of their kind,
// and so does the space between columns; empty lines do not count. Other blocks are let be.
package page

import (
	"fmt"
	"regexp"
	"strings"
)

// Command is what is typed, and what it is shown to print.
type Command struct {
	// Line is where it is on the page, from 1 on.
	Line int
	// Text may have several lines.
	Text string
	// Shown are the lines of its output.
	Shown []string
}

const indent = "    "

// Read returns the commands of a page in their order.
func Read(markdown string) ([]Command, error) {
	var all []Command
	session, before := false, ""
	for i, line := range strings.Split(markdown, "\n") {
		text, indented := strings.CutPrefix(line, indent)
		if !indented {
			if line != "" {
				session = false
			}
			before = line
			continue
		}
		if begins := !session && before == ""; begins {
			session = strings.HasPrefix(text, "$ ")
		}
		before = text
		if !session {
			continue
		}
		if typed, ok := strings.CutPrefix(text, "$ "); ok {
			all = append(all, Command{Line: i + 1, Text: typed})
			continue
		}
		last := &all[len(all)-1]
		if more, ok := strings.CutPrefix(text, "> "); ok {
			if len(last.Shown) > 0 {
				return nil, fmt.Errorf("line %d: a command goes on after what it prints", i+1)
			}
			last.Text += "\n" + more
			continue
		}
		last.Shown = append(last.Shown, text)
	}
	return all, nil
}

// vary are the things that differ, by what stands in their place.
var vary = []struct {
	what  *regexp.Regexp
	place string
}{
	// The ends that the API server and controllers give to names: no vowels, no 0, 1 and 3 in them.
	{regexp.MustCompile(`-[bcdf-hj-np-tv-z2456789]{6,10}-[bcdf-hj-np-tv-z2456789]{5}\b`), "-HASH-END"},
	{regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`), "ADDRESS"},
	{regexp.MustCompile(`:3[0-2]\d{3}/`), ":NODEPORT/"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|d|h|m|s))+\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?[kKMG]i?B?\b`), "SIZE"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func alike(line string) string {
	for _, v := range vary {
		line = v.what.ReplaceAllString(line, v.place)
	}
	return strings.TrimSpace(line)
}

// Prints says whether an output is the one that is shown; the error tells the first line that is not.
func (c Command) Prints(output string) error {
	var got []string
	for line := range strings.SplitSeq(output, "\n") {
		if strings.TrimSpace(line) != "" {
			got = append(got, line)
		}
	}
	return match(c.Shown, got)
}

func match(shown, got []string) error {
	for i, want := range shown {
		if strings.TrimSpace(want) == "..." {
			var err error
			for skip := i; skip <= len(got); skip++ {
				if err = match(shown[i+1:], got[skip:]); err == nil {
					return nil
				}
			}
			return fmt.Errorf("after %q: %w", "...", err)
		}
		if i >= len(got) {
			return fmt.Errorf("it ends where %q is shown", want)
		}
		if !matchLine(want, got[i]) {
			return fmt.Errorf("%q is shown, it is %q", want, got[i])
		}
	}
	if len(got) > len(shown) {
		return fmt.Errorf("%q is not shown", got[len(shown)])
	}
	return nil
}

func matchLine(want, got string) bool {
	parts := strings.Split(alike(want), "...")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(alike(got))
}
