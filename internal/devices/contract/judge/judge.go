// Package judge says what was observed of a device plugin keeps the contract of the kubelet's device plugin API (v1beta1), and what does not.
//
// It is pure: the observations are values, and so are the checks. Package contract observes.
package judge

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is what came of a check.
type Verdict string

// The verdicts. Warn is what works with this node, or mostly, and may be wrong all the same; Skip is what could not be looked at.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
	Skip Verdict = "skip"
)

// Check is one line of the report.
type Check struct {
	// Name is one of those that Names lists.
	Name string `json:"name"`
	// Resource is whose devices it is about; empty: it is about the plugin.
	Resource string  `json:"resource,omitempty"`
	Verdict  Verdict `json:"verdict"`
	// Found is what was observed; for Skip why nothing was.
	Found string `json:"found"`
	// API is what the API says about it, with the message and the field, or what nodes do where it says nothing.
	API string `json:"api"`
	// Remedy is what the plugin's author can do; it is there for Warn and Fail.
	Remedy string `json:"remedy,omitempty"`
}

// check makes one by the rule of that name.
func check(v Verdict, name, resource, format string, args ...any) Check {
	r, _ := ruleOf(name) // there is one for each name that is used here: see the tests
	c := Check{Name: name, Resource: resource, Verdict: v, Found: fmt.Sprintf(format, args...), API: r.api}
	if c.bad() {
		c.Remedy = r.remedy
	}
	return c
}

// bad says that something is wrong.
func (c Check) bad() bool { return c.Verdict == Warn || c.Verdict == Fail }

// NotDone is a check that was left out, with the reason.
func NotDone(name, resource, why string) Check { return check(Skip, name, resource, "%s", why) }

// Call is how a call of the plugin went.
type Call struct {
	Took time.Duration
	// Error is the plugin's words; empty: it answered.
	Error string
	// Hung says that there was no answer in time, Lost that the connection ended, Unknown that the plugin does not have the method. Error
	// is set for each.
	Hung, Lost, Unknown bool
}

// Failed says that there was no answer, or an error.
func (c Call) Failed() bool { return c.Error != "" }

// String is how the call went, after its name: "fails after 3 ms: ...".
func (c Call) String() string {
	switch {
	case c.Hung:
		return fmt.Sprintf("does not answer within %s", Time(c.Took))
	case c.Lost:
		return fmt.Sprintf("ends the connection after %s: %s", Time(c.Took), c.Error)
	case c.Unknown:
		return "is not known to the plugin"
	case c.Error != "":
		return fmt.Sprintf("fails after %s: %s", Time(c.Took), c.Error)
	}
	return fmt.Sprintf("answers after %s", Time(c.Took))
}

// Time is a time as people read it.
func Time(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// some lists a few of many.
func some(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// brief quotes what a plugin sent, which may be of any length.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q... of %d bytes", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
