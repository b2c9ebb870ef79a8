package judge

import (
	"fmt"
	"time"
)

// adviceTime is how long the node waits for advice.
const adviceTime = 1500 * time.Millisecond

// Preference is one GetPreferredAllocation.
type Preference struct {
	// What was asked for, for messages: "2 of 4 devices".
	What string
	Call
	// Wrong is why the node does not follow the answer; empty: it does.
	Wrong string
}

// Preferred judges the preferences.
func Preferred(resource string, all []Preference) []Check {
	var failed, slow, wrong []string
	slowest := time.Duration(0)
	for _, p := range all {
		slowest = max(slowest, p.Took)
		switch {
		case p.Failed():
			failed = append(failed, fmt.Sprintf("GetPreferredAllocation of %s %s", p.What, p.Call))
		case p.Took > adviceTime:
			slow = append(slow, fmt.Sprintf("%s: %s", p.What, Time(p.Took)))
		}
		if p.Wrong != "" {
			wrong = append(wrong, p.What+": "+p.Wrong)
		}
	}
	var answers Check
	switch {
	case len(failed) > 0:
		answers = check(Fail, "prefer/answers", resource, "%s", some(failed))
	case len(slow) > 0:
		answers = check(Warn, "prefer/answers", resource, "slower than %s, so that nobody waits for it: %s", adviceTime, some(slow))
	default:
		answers = check(OK, "prefer/answers", resource, "%s, the slowest answer after %s", count(len(all), "request"), Time(slowest))
	}
	if len(failed) == len(all) {
		return []Check{answers, NotDone("prefer/fits", resource, "there is no answer")}
	}
	return []Check{answers, orError("prefer/fits", resource, some(wrong), "%s fit", count(len(all)-len(failed), "answer"))}
}

// Starting is one PreStartContainer.
type Starting struct {
	What string
	Call
}

// startTime is how long the API gives PreStartContainer.
const startTime = 30 * time.Second

// StartsAnswered judges the calls before a start.
func StartsAnswered(resource string, all []Starting) Check {
	const name = "start/answers"
	var failed []string
	slowest := time.Duration(0)
	for _, s := range all {
		slowest = max(slowest, s.Took)
		if s.Failed() {
			failed = append(failed, fmt.Sprintf("PreStartContainer of %s %s", s.What, s.Call))
		}
	}
	switch {
	case len(failed) > 0:
		return check(Fail, name, resource, "%s", some(failed))
	case slowest > startTime:
		return check(Fail, name, resource, "it takes %s, and nodes give it %s", Time(slowest), startTime)
	}
	return check(OK, name, resource, "%s, the slowest answered after %s", count(len(all), "call"), Time(slowest))
}
