package judge

import (
	"fmt"
	"slices"
	"strings"
)

// Later are the lists that came after the first one of a stream. The zero value is none.
type Later struct {
	lists  int
	faults []laterFault
}

// laterFault is what was wrong with a list, for the first time.
type laterFault struct {
	list  int // 1 is the first of the later ones
	check Check
}

// Add looks at the next list. Of a list that was looked at nothing is kept but what is wrong with it.
func (l *Later) Add(list List) {
	l.lists++
	for _, c := range contents("", list) {
		known := slices.ContainsFunc(l.faults, func(f laterFault) bool { return f.check.Name == c.Name && f.check.Verdict == c.Verdict })
		if c.bad() && !known {
			l.faults = append(l.faults, laterFault{l.lists, c})
		}
	}
}

// ListedLater judges the later lists. What was wrong with the first one in the same way is told by the checks of that, and not again.
func ListedLater(resource string, first List, l Later) Check {
	const name = "list/later"
	told := contents("", first)
	verdict := OK
	var found []string
	for _, f := range l.faults {
		if slices.ContainsFunc(told, func(c Check) bool { return c.Name == f.check.Name && c.Verdict == f.check.Verdict }) {
			continue
		}
		if verdict != Fail {
			verdict = f.check.Verdict
		}
		found = append(found, fmt.Sprintf("number %d (as %s): %s", f.list, f.check.Name, f.check.Found))
	}
	switch {
	case l.lists == 0:
		return check(OK, name, resource, "none was sent")
	case verdict != OK:
		return check(verdict, name, resource, "of %s after the first, %s", count(l.lists, "list"), strings.Join(found, "; "))
	case len(l.faults) > 0:
		return check(OK, name, resource, "%s, with nothing that was not wrong with the first", count(l.lists, "list"))
	}
	return check(OK, name, resource, "%s, as good as the first", count(l.lists, "list"))
}
