package job

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

// Conditions that are True, as YAML.
const (
	met      = "{type: SuccessCriteriaMet, status: 'True'}"
	complete = "{type: Complete, status: 'True'}"
	target   = "{type: FailureTarget, status: 'True'}"
	failed   = "{type: Failed, status: 'True'}"
	start    = "startTime: '2026-01-01T10:00:00Z', "
	end      = "completionTime: '2026-01-01T11:00:00Z', "
	success  = start + end + "conditions: [" + met + ", " + complete + "]"
)

func TestStatusRules(t *testing.T) {
	const plain, indexed = "completions: 3, parallelism: 1", "completionMode: Indexed, completions: 5, parallelism: 2, backoffLimitPerIndex: 1"
	for name, tc := range map[string]struct {
		spec, status, old string
		want              string // the start of the only error; empty: none
	}{
		"runs":                        {plain, start + "active: 2, ready: 1, succeeded: 1, failed: 1, terminating: 1, uncountedTerminatedPods: {succeeded: [a], failed: [b]}", "", ""},
		"is complete":                 {plain, success, "active: 1, " + start, ""},
		"has failed":                  {plain, start + "failed: 2, conditions: [" + target + ", " + failed + "]", start, ""},
		"below zero":                  {plain, "active: -1", "", "status.active: Invalid value"},
		"fewer than no pods end":      {plain, "terminating: -1", "", "status.terminating: Invalid value"},
		"more ready than there are":   {plain, "ready: 1", "", "status.ready: Invalid value"},
		"fewer failures":              {plain, "failed: 1", "failed: 2", "status.failed: Invalid value"},
		"fewer successes":             {plain, "succeeded: 1", "succeeded: 2", "status.succeeded: Invalid value"},
		"fewer of fewer":              {"completionMode: Indexed, completions: 2, parallelism: 2", "succeeded: 1", "succeeded: 2", ""},
		"a pod twice":                 {plain, "uncountedTerminatedPods: {succeeded: [a], failed: [a]}", "", "status.uncountedTerminatedPods.failed[0]: Duplicate value"},
		"a pod without UID":           {plain, "uncountedTerminatedPods: {succeeded: ['']}", "", "status.uncountedTerminatedPods.succeeded[0]: Invalid value"},
		"complete and failing":        {plain, start + end + "conditions: [" + complete + ", " + met + "]", start + "conditions: [" + target + "]", "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True"},
		"met and failing":             {plain, "conditions: [" + met + ", " + target + "]", "", "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=True"},
		"failed at once":              {plain, start + "conditions: [" + failed + "]", start, "status.conditions: Invalid value: cannot set Failed=True condition without"},
		"complete at once":            {plain, start + end + "conditions: [" + complete + "]", start, "status.conditions: Invalid value: cannot set Complete=True condition without"},
		"complete of old":             {plain, start + end + "conditions: [" + complete + "]", start + end + "conditions: [" + complete + "]", ""},
		"met after the end":           {plain, success, start + end + "conditions: [" + complete + "]", "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True for a job that already is Complete=True"},
		"not met any more":            {plain, start, start + "conditions: [" + met + "]", "status.conditions: Invalid value: cannot disable"},
		"complete, no time":           {plain, start + "conditions: [" + met + ", " + complete + "]", start, "status.completionTime: Required value"},
		"a time, not complete":        {plain, start + end, start, "status.completionTime: Invalid value"},
		"over before the start":       {plain, "startTime: '2026-01-01T12:00:00Z', " + end + "conditions: [" + met + ", " + complete + "]", "startTime: '2026-01-01T12:00:00Z'", "status.completionTime: Invalid value"},
		"over at another time":        {plain, strings.Replace(success, "11:00", "11:30", 1), success, "status.completionTime: Invalid value: \"2026-01-01T11:30:00Z\": field is immutable"},
		"over without a start":        {plain, end + "conditions: [" + met + ", " + complete + "]", "", "status.startTime: Required value"},
		"nothing to do, suspended":    {"suspend: true, completions: 0", end + "conditions: [" + met + ", " + complete + "]", "", ""},
		"starts anew":                 {plain, "startTime: '2026-01-01T12:00:00Z'", start, "status.startTime: Invalid value"},
		"is suspended":                {"suspend: true, completions: 3", "conditions: [{type: Suspended, status: 'True'}]", start, ""},
		"goes on":                     {plain, start + "conditions: [{type: Suspended, status: 'False'}]", "startTime: '2026-01-01T09:00:00Z', conditions: [{type: Suspended, status: 'True'}]", ""},
		"over with pods":              {plain, success + ", active: 1", start + "active: 1", "status.active: Invalid value"},
		"over with pods that end":     {plain, success + ", terminating: 1", start, "status.terminating: Invalid value"},
		"over, pods are not counted":  {plain, success + ", uncountedTerminatedPods: {failed: [a]}", start, "status.uncountedTerminatedPods: Invalid value"},
		"indexes":                     {indexed, "completedIndexes: '0-1,4', failedIndexes: '2'", "", ""},
		"indexes of none":             {plain, "completedIndexes: '0'", "", "status.completedIndexes: Invalid value"},
		"failed indexes of none":      {plain, "failedIndexes: ''", "", "status.failedIndexes: Invalid value"},
		"indexes, no number":          {indexed, "completedIndexes: a", "", "status.completedIndexes: Invalid value"},
		"indexes, too high":           {indexed, "failedIndexes: 3-5", "", "status.failedIndexes: Invalid value"},
		"indexes, as they were":       {indexed, "active: 1, completedIndexes: '7'", "completedIndexes: '7'", ""},
		"an index both ways":          {indexed, "completedIndexes: 0-3, failedIndexes: '1,3'", "", "status.failedIndexes: Invalid value: \"1,3\": the index 1 is"},
		"complete, success by policy": {indexed + ", successPolicy: {rules: [{succeededCount: 1}]}", success, start, ""},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(status string) *batchv1.Job {
				j := &batchv1.Job{}
				if err := yaml.UnmarshalStrict([]byte("{spec: {"+tc.spec+"}, status: {"+status+"}}"), j); err != nil {
					t.Fatal(err)
				}
				return j
			}
			errs := validateStatus(read(tc.status), read(tc.old))
			switch {
			case tc.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want)):
				t.Errorf("errors %v, want one that begins with %q", errs, tc.want)
			}
		})
	}
}

// Whatever is written there, an index that is said to be in both lists is in both.
func FuzzIndexes(f *testing.F) {
	for _, text := range []string{"", "0", "0-1,4", "1,0", "1-1", "-1", "3-", "a", "0-99999", "9999999999", "1,,2", "+1"} {
		f.Add(text, "2-3", int32(5))
	}
	f.Fuzz(func(t *testing.T, a, b string, completions int32) {
		n, err := countIndexes(a, completions)
		if err == nil && a != "" && (n < 1 || n > int(completions)) {
			t.Errorf("%q are %d indexes of %d", a, n, completions)
		}
		if at, both := overlap(a, b, completions); both && (at < 0 || at >= int(completions)) {
			t.Errorf("%q and %q have the index %d of %d", a, b, at, completions)
		}
	})
}
