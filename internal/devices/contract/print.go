package contract

import (
	"fmt"
	"io"
	"strings"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/kit/oneline"
)

// nameWidth is the column of the checks' names.
const nameWidth = 22

// Printer writes checks for people, as they come.
type Printer struct {
	W    io.Writer
	seen map[string]bool // the resources so far
}

// Check writes a check: a line, and below it, where something is wrong, what the API says and what to do. The resource is named where there are
// several.
func (p *Printer) Check(c judge.Check) error {
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	verdict, found := string(c.Verdict), c.Found
	if c.Verdict == judge.Fail {
		verdict = "FAIL"
	}
	if c.Resource != "" {
		p.seen[c.Resource] = true
		if len(p.seen) > 1 {
			found = c.Resource + ": " + found
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-4s  %-*s  %s\n", verdict, nameWidth, c.Name, oneline.Of(found))
	if c.Remedy != "" {
		indent := strings.Repeat(" ", 6+nameWidth+2)
		fmt.Fprintf(&out, "%sAPI: %s\n%s->   %s\n", indent, c.API, indent, c.Remedy)
	}
	_, err := io.WriteString(p.W, out.String())
	return err
}

// PrintEnd writes what comes after the checks.
func (r *Report) PrintEnd(w io.Writer) error {
	var out strings.Builder
	if len(r.Output) > 0 {
		out.WriteString("\nThe plugin's last words:\n")
		for _, line := range r.Output {
			out.WriteString("    " + oneline.Of(line) + "\n")
		}
	}
	out.WriteString("\n")
	for _, res := range r.Resources {
		name := res.Name
		if name == "" {
			name = "the plugin's resource"
		}
		fmt.Fprintf(&out, "%s: %d devices, %d healthy, at %s\n", name, res.Devices, res.Healthy, res.Socket)
	}
	noun := "checks"
	if len(r.Checks) == 1 {
		noun = "check"
	}
	fmt.Fprintf(&out, "%d %s: %d ok, %d warn, %d FAIL, %d skip\n", len(r.Checks), noun, r.Count(judge.OK), r.Count(judge.Warn), r.Count(judge.Fail), r.Count(judge.Skip))
	_, err := io.WriteString(w, out.String())
	return err
}
