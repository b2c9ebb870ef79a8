package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestPassing: only that the agent makes a container anew because its image was changed may wait for what comes of it.
func TestPassing(t *testing.T) {
	// old is the container as it was before the change, now that it has ended.
	old, ended := has("a", 0, "s", Running, hashed("old")), has("a", 0, "s", Exited, hashed("old"), code(143))
	changed, stopped, starts := hash("a", "new"), fact(Stopping, "a0", time.Second), ongoing(StartContainer, "a")
	up := sandbox("s", 0, true)
	next := func(state ContainerState) option { return has("a", 1, "s", state, hashed("new")) }
	with := func(b ContainerState, c int32) option {
		return func(in *Input) {
			mains("a", "b")(in)
			has("b", 0, "s", b, code(c))(in)
		}
	}
	for name, c := range map[string]struct {
		before, now []option
		passing     bool
	}{
		"its successor is being made":             {[]option{up, changed, old}, []option{up, changed, stopped, starts, ended}, true},
		"its successor was made":                  {[]option{up, changed, old}, []option{up, changed, stopped, starts, ended, next(Created)}, true},
		"it goes on":                              {[]option{up, changed, stopped, starts, ended}, []option{up, changed, stopped, starts, ended, next(Created)}, true},
		"beside another one":                      {[]option{up, changed, with(Running, 0), old}, []option{up, changed, with(Running, 0), stopped, starts, ended}, true},
		"its successor runs":                      {[]option{up, changed, stopped, starts, ended}, []option{up, changed, stopped, ended, next(Running)}, false},
		"its successor cannot be made":            {[]option{up, changed, old}, []option{up, changed, stopped, ended, failure(StartContainer, "a", ReasonErrImagePull, 0, 1)}, false},
		"another one crashed meanwhile":           {[]option{up, changed, with(Running, 0), old}, []option{up, changed, with(Exited, 1), stopped, starts, ended}, false},
		"it crashed":                              {[]option{up, hash("a", "old"), old}, []option{up, hash("a", "old"), starts, ended}, false},
		"it crashed before it could be stopped":   {[]option{up, changed, old}, []option{up, changed, starts, ended}, false},
		"a probe's":                               {[]option{up, hash("a", "old"), old}, []option{up, hash("a", "old"), stopped, starts, ended}, false},
		"it was not known from what it was made":  {[]option{up, old}, []option{up, stopped, starts, has("a", 0, "s", Exited)}, false},
		"the pod is deleted":                      {[]option{up, changed, old}, []option{up, changed, stopped, ended, deleted(time.Second)}, false},
		"nobody sees the change before":           {nil, []option{up, changed, stopped, starts, ended}, false},
		"another generation has come meanwhile":   {[]option{up, changed, old}, []option{up, changed, stopped, starts, ended, func(in *Input) { in.Pod.Generation++ }}, false},
		"nothing but that it is about to be done": {[]option{up, hash("a", "old"), old}, []option{up, changed, old}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var before *v1.PodStatus
			now := given(c.now...)
			if c.before != nil {
				st := Status(given(c.before...))
				before, now.Prior = &st, st
			}
			st := Status(now)
			if got := Passing(&now, before, &st); got != c.passing {
				t.Errorf("passing: %v, want %v\nbefore %+v\nnow    %+v", got, c.passing, before, st)
			}
		})
	}
}
