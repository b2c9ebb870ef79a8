package contract

import "monopod.dev/monopod/internal/devices/contract/judge"

// notes writes the report.
type notes struct {
	report *Report
	tell   func(judge.Check) // of each check; nil: nobody
	over   func() error      // why the run is given up; nil: it is not
}

// add puts checks into the report. What is found when the run was given up is nobody's fault.
func (n *notes) add(checks ...judge.Check) {
	if n.over() != nil {
		return
	}
	for _, c := range checks {
		n.report.Checks = append(n.report.Checks, c)
		if n.tell != nil {
			n.tell(c)
		}
	}
}

// skip puts checks into the report that are not made.
func (n *notes) skip(resource, why string, names ...string) {
	for _, name := range names {
		n.add(judge.NotDone(name, resource, why))
	}
}

// undone are those of the checks that were not made yet.
func (n *notes) undone(names []string) (left []string) {
	for _, name := range names {
		done := false
		for _, c := range n.report.Checks {
			done = done || c.Name == name
		}
		if !done {
			left = append(left, name)
		}
	}
	return left
}
