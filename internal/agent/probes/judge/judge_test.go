package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// every is a probe with a period, thresholds of 1 and 3, and no delay.
func every(seconds int32) *v1.Probe {
	return &v1.Probe{PeriodSeconds: seconds, SuccessThreshold: 1, FailureThreshold: 3, TimeoutSeconds: 1}
}

func with(p *v1.Probe, change func(*v1.Probe)) *v1.Probe {
	change(p)
	return p
}

func delay(seconds int32) func(*v1.Probe) { return func(p *v1.Probe) { p.InitialDelaySeconds = seconds } }
func threshold(success, failure int32) func(*v1.Probe) {
	return func(p *v1.Probe) { p.SuccessThreshold, p.FailureThreshold = success, failure }
}

// game plays a container by the answers that it would give: an attempt that begins so long after the container's start ends how, after how long.
type game struct {
	spec    Spec
	answers func(k Kind, at time.Duration) (Outcome, time.Duration)
	// seen is when the container is first seen, until the end of the game; both count from its start.
	seen, until time.Duration
	// then is what is done when a time has come.
	then map[time.Duration]func(*Container, time.Time)
}

// play is what happened, a line an attempt: when it was due, of which probe (S, L, R), how it ended (+, - or ?), in brackets if it did not count; and
// what is known, when that has changed.
func (g game) play(t *testing.T) string {
	t.Helper()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g.spec.StartedAt = start
	now := start.Add(g.seen)
	c := Begin(g.spec, now)
	var lines []string
	known := func(when time.Duration) {
		f := c.Facts()
		line := fmt.Sprintf("%v started=%s ready=%s", when, names[f.Started], names[f.Ready])
		if f.Failed != Kinds {
			line += " failed=" + f.Failed.String()
		}
		lines = append(lines, line)
	}
	known(g.seen)
	for {
		kind, due := Kinds, start.Add(g.until)
		for k := range Kinds {
			if at, ok := c.Due(k); ok && at.Before(due) {
				kind, due = k, at
			}
		}
		for at, do := range g.then {
			if !start.Add(at).After(due) {
				was := c.Facts()
				do(&c, start.Add(at))
				delete(g.then, at)
				if c.Facts() != was {
					known(at)
				}
				kind = -1
				break
			}
		}
		if kind < 0 {
			continue
		}
		if kind == Kinds {
			return strings.Join(lines, "\n")
		}
		at := due.Sub(start)
		outcome, took := g.answers(kind, at)
		told, changed := c.Answer(kind, outcome, due.Add(took))
		line := kind.String()[:1] + [...]string{"?", "+", "-"}[outcome]
		if !told {
			line = "(" + line + ")"
		}
		lines = append(lines, fmt.Sprintf("%v %s", at, line))
		if changed {
			known(at + took)
		}
		if len(lines) > 100 {
			t.Fatalf("it does not end:\n%s", strings.Join(lines, "\n"))
		}
	}
}

var names = map[Known]string{NotKnown: "?", Yes: "yes", No: "no"}

// from answers Failure before a time, then Success, at once.
func from(at map[Kind]time.Duration) func(Kind, time.Duration) (Outcome, time.Duration) {
	return func(k Kind, now time.Duration) (Outcome, time.Duration) {
		if now < at[k] {
			return Failure, 0
		}
		return Success, 0
	}
}

// until answers Success before a time, then Failure.
func until(at map[Kind]time.Duration) func(Kind, time.Duration) (Outcome, time.Duration) {
	return func(k Kind, now time.Duration) (Outcome, time.Duration) {
		if now < at[k] {
			return Success, 0
		}
		return Failure, 0
	}
}

func TestCourses(t *testing.T) {
	probes := func(s, l, r *v1.Probe) Spec { return Spec{Probes: [Kinds]*v1.Probe{s, l, r}} }
	never := map[Kind]time.Duration{Startup: time.Hour, Liveness: time.Hour, Readiness: time.Hour}
	for _, c := range []struct {
		name string
		game
		want string
	}{
		{"without probes all is well", game{until: time.Hour}, "0s started=yes ready=yes"},
		{"what is up soon is ready soon, then asked each period",
			game{spec: probes(nil, nil, every(10)), answers: from(map[Kind]time.Duration{Readiness: 250 * time.Millisecond}), until: 31 * time.Second},
			`0s started=yes ready=?; 0s (R-); 100ms (R-); 300ms R+; 300ms started=yes ready=yes; 10s R+; 20s R+; 30s R+`},
		{"failures of the first period do not count",
			game{spec: probes(nil, nil, every(2)), answers: from(never), until: 9 * time.Second},
			`0s started=yes ready=?; 0s (R-); 100ms (R-); 300ms (R-); 700ms (R-); 1.5s (R-); 2s R-; 4s R-; 6s R-; 6s started=yes ready=no; 8s R-`},
		{"after the initial delay the first failure counts",
			game{spec: probes(nil, nil, with(every(2), delay(5))), answers: from(never), until: 10 * time.Second},
			`0s started=yes ready=?; 5s R-; 5.1s (R-); 5.3s (R-); 5.7s (R-); 6.5s (R-); 7s R-; 9s R-; 9s started=yes ready=no`},
		{"a liveness probe first asks after a period, and fails by its threshold",
			game{spec: probes(nil, every(10), nil), answers: from(never), until: time.Hour},
			`0s started=yes ready=yes; 10s L-; 20s L-; 30s L-; 30s started=yes ready=yes failed=Liveness`},
		{"a liveness probe with a delay asks when it is over",
			game{spec: probes(nil, with(with(every(10), delay(15)), threshold(1, 1)), nil), answers: from(never), until: time.Hour},
			`0s started=yes ready=yes; 15s L-; 15s started=yes ready=yes failed=Liveness`},
		{"a success between failures begins the count anew",
			game{spec: probes(nil, with(every(10), threshold(1, 2)), nil), until: time.Hour,
				answers: func(_ Kind, at time.Duration) (Outcome, time.Duration) {
					return map[time.Duration]Outcome{10 * time.Second: Failure, 20 * time.Second: Success, 30 * time.Second: Failure}[at] | outcomeAt(at >= 40*time.Second), 0
				}},
			`0s started=yes ready=yes; 10s L-; 20s L+; 30s L-; 40s L-; 40s started=yes ready=yes failed=Liveness`},
		{"what could not be asked says nothing",
			game{spec: probes(nil, with(every(10), threshold(1, 2)), nil), until: 41 * time.Second,
				answers: func(_ Kind, at time.Duration) (Outcome, time.Duration) {
					if at == 20*time.Second {
						return NoAnswer, 0
					}
					return Failure, 0
				}},
			`0s started=yes ready=yes; 10s L-; 20s L?; 30s L-; 30s started=yes ready=yes failed=Liveness`},
		{"readiness comes by the success threshold and goes by the failure threshold",
			game{spec: probes(nil, nil, with(every(10), threshold(2, 2))), answers: until(map[Kind]time.Duration{Readiness: 25 * time.Second}), until: 45 * time.Second},
			`0s started=yes ready=?; 0s R+; 10s R+; 10s started=yes ready=yes; 20s R+; 30s R-; 40s R-; 40s started=yes ready=no`},
		{"readiness goes on after liveness has failed",
			game{spec: probes(nil, with(every(10), threshold(1, 1)), every(10)), answers: until(map[Kind]time.Duration{Readiness: time.Hour}), until: 25 * time.Second},
			`0s started=yes ready=?; 0s R+; 0s started=yes ready=yes; 10s L-; 10s started=yes ready=yes failed=Liveness; 10s R+; 20s R+`},
		{"the others wait for the startup probe; then readiness is asked at once and liveness at its next moment",
			game{spec: probes(every(3), every(10), every(10)), answers: from(map[Kind]time.Duration{Startup: 5 * time.Second}), until: 21 * time.Second},
			`0s started=no ready=no; 0s (S-); 100ms (S-); 300ms (S-); 700ms (S-); 1.5s (S-); 3s S-; 6s S+; 6s started=yes ready=?; 6s R+; 6s started=yes ready=yes; 10s L+; 16s R+; 20s L+`},
		{"liveness leaves out the moments that have passed, and both heed their delays",
			game{spec: probes(every(13), every(10), with(every(10), delay(40))), answers: from(map[Kind]time.Duration{Startup: 20 * time.Second}), until: 41 * time.Second},
			`0s started=no ready=no; 0s (S-); 100ms (S-); 300ms (S-); 700ms (S-); 1.5s (S-); 3.1s (S-); 6.3s (S-); 12.7s (S-); 13s S-; 26s S+; 26s started=yes ready=?; 30s L+; 40s L+; 40s R+; 40s started=yes ready=yes`},
		{"a startup probe has its threshold times its period, and then asks no more",
			game{spec: probes(with(every(1), threshold(1, 2)), every(1), every(1)), answers: from(never), until: time.Hour},
			`0s started=no ready=no; 0s (S-); 100ms (S-); 300ms (S-); 700ms (S-); 1s S-; 2s S-; 2s started=no ready=no failed=Startup`},
		{"a startup probe that passed before the agent's restart is not asked again",
			game{spec: Spec{Probes: [Kinds]*v1.Probe{every(10), every(10), every(10)}, Started: true, Adopted: true, Spread: [Kinds]float64{0, .5, .25}},
				answers: from(nil), seen: time.Minute, until: 76 * time.Second},
			`1m0s started=yes ready=?; 1m2.5s R+; 1m2.5s started=yes ready=yes; 1m5s L+; 1m12.5s R+; 1m15s L+`},
		{"one that was there before keeps what is said of it until a threshold is met",
			game{spec: Spec{Probes: [Kinds]*v1.Probe{nil, nil, with(every(10), threshold(1, 2))}, Adopted: true}, answers: from(never), seen: time.Minute, until: 81 * time.Second},
			`1m0s started=yes ready=?; 1m0s R-; 1m10s R-; 1m10s started=yes ready=no; 1m20s R-`},
		{"one that was there before and is still in its initial delay",
			game{spec: Spec{Probes: [Kinds]*v1.Probe{nil, with(every(10), delay(90)), nil}, Adopted: true, Spread: [Kinds]float64{1: .9}}, answers: from(nil), seen: time.Minute, until: 101 * time.Second},
			`1m0s started=yes ready=yes; 1m30s L+; 1m40s L+`},
		{"one that is seen late is asked at once",
			game{spec: probes(nil, every(10), every(10)), answers: from(nil), seen: 3 * time.Second, until: 14 * time.Second},
			`3s started=yes ready=?; 3s R+; 3s started=yes ready=yes; 13s L+; 13s R+`},
		{"attempts that take longer follow each other, and leave out what they cannot make up for",
			game{spec: probes(nil, with(every(10), delay(10)), nil), until: 90 * time.Second,
				answers: func(_ Kind, at time.Duration) (Outcome, time.Duration) {
					return Success, map[time.Duration]time.Duration{10 * time.Second: 15 * time.Second, 30 * time.Second: 25 * time.Second}[at]
				}},
			`0s started=yes ready=yes; 10s L+; 20s L+; 30s L+; 50s L+; 1m0s L+; 1m10s L+; 1m20s L+`},
		{"of a pod that is deleted only readiness is asked",
			game{spec: probes(nil, with(every(10), threshold(1, 1)), every(10)), answers: until(map[Kind]time.Duration{Liveness: time.Hour, Readiness: 15 * time.Second}), until: 61 * time.Second,
				then: map[time.Duration]func(*Container, time.Time){12 * time.Second: func(c *Container, _ time.Time) { c.Terminate() }}},
			`0s started=yes ready=?; 0s R+; 0s started=yes ready=yes; 10s L+; 10s R+; 20s R-; 30s R-; 40s R-; 40s started=yes ready=no; 50s R-; 1m0s R-`},
		{"what failed is forgotten when the pod is deleted",
			game{spec: probes(with(every(10), threshold(1, 1)), nil, every(10)), answers: from(never), until: time.Hour,
				then: map[time.Duration]func(*Container, time.Time){12 * time.Second: func(c *Container, _ time.Time) { c.Terminate() }}},
			`0s started=no ready=no; 0s (S-); 100ms (S-); 300ms (S-); 700ms (S-); 1.5s (S-); 3.1s (S-); 6.3s (S-); 10s S-; 10s started=no ready=no failed=Startup; 12s started=no ready=no`},
		{"a container of a pod that is deleted already",
			game{spec: Spec{Probes: [Kinds]*v1.Probe{nil, every(10), every(10)}, Terminating: true}, answers: from(nil), until: 11 * time.Second},
			`0s started=yes ready=?; 0s R+; 0s started=yes ready=yes; 10s R+`},
		{"somebody else knows that it has started",
			game{spec: probes(with(every(10), delay(60)), nil, every(10)), answers: from(nil), until: 16 * time.Second,
				then: map[time.Duration]func(*Container, time.Time){5 * time.Second: func(c *Container, now time.Time) { c.Start(now) }}},
			`0s started=no ready=no; 5s started=yes ready=?; 5s R+; 5s started=yes ready=yes; 15s R+`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := c.play(t), strings.ReplaceAll(c.want, "; ", "\n"); got != want {
				t.Errorf("it went\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// outcomeAt is a Failure from when it is true on.
func outcomeAt(failed bool) Outcome {
	if failed {
		return Failure
	}
	return 0
}

// An answer that comes after its probe has been silenced changes nothing.
func TestAnswerOfASilentProbe(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := Begin(Spec{Probes: [Kinds]*v1.Probe{Liveness: with(every(1), threshold(1, 1))}, StartedAt: now}, now)
	c.Terminate()
	if told, changed := c.Answer(Liveness, Failure, now.Add(time.Second)); told || changed || c.Facts().Failed != Kinds {
		t.Errorf("told %v, changed %v, failed %v: want none", told, changed, c.Facts().Failed)
	}
	if _, due := c.Due(Liveness); due {
		t.Error("it is due")
	}
}

func TestKindsHaveTheNamesOfAKubelet(t *testing.T) {
	if got, want := []string{Startup.String(), Liveness.String(), Readiness.String()}, []string{"Startup", "Liveness", "Readiness"}; !slices.Equal(got, want) {
		t.Errorf("they are %q, want %q", got, want)
	}
}
