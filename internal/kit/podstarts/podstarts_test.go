package podstarts

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// at is so many milliseconds after a recorder began.
func (r *Recorder) at(ms int) time.Time { return r.begun.Add(time.Duration(ms) * time.Millisecond) }

func (r *Recorder) lines(t *testing.T, name string) (lines []string) {
	t.Helper()
	p, ok := r.Pod("ns", name)
	if !ok {
		t.Fatalf("nothing is remembered of %s", name)
	}
	for _, s := range p.Steps {
		end := "..."
		if !s.End.IsZero() {
			end = fmt.Sprint(s.End.Sub(r.begun).Milliseconds())
		}
		lines = append(lines, fmt.Sprintf("%s/%s %d-%s %s", s.Name, s.Container, s.Begin.Sub(r.begun).Milliseconds(), end, s.Outcome))
	}
	return lines
}

func TestStepsAreInOrder(t *testing.T) {
	r := New(Config{})
	r.Open("u", "ns", "p")
	r.Span("u", "late", "", r.at(50), r.at(60))
	r.Span("u", "moment", "a", r.at(10), r.at(10))
	r.Span("u", "long", "a", r.at(10), r.at(40))
	r.Span("u", "first", "", r.at(-5), r.at(8)) // it came before the recorder
	want := []string{"first/ -5-8 ", "long/a 10-40 ", "moment/a 10-10 ", "late/ 50-60 "}
	if got := r.lines(t, "p"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r.Open("u", "ns", "p")
	if got := r.lines(t, "p"); !slices.Equal(got, want) {
		t.Errorf("opened again: %q", got)
	}
}

func TestAStepUnderWay(t *testing.T) {
	r := New(Config{})
	r.Open("u", "ns", "p")
	s := r.Begin("u", "pull", "a")
	if p, _ := r.Pod("ns", "p"); len(p.Steps) != 1 || !p.Steps[0].End.IsZero() {
		t.Errorf("%+v", p.Steps)
	}
	r.Close("u")
	s.End("ErrImagePull")
	p, _ := r.Pod("ns", "p")
	if len(p.Steps) != 1 || p.Steps[0].End.Before(p.Steps[0].Begin) || p.Steps[0].Outcome != "ErrImagePull" {
		t.Errorf("%+v", p.Steps)
	}
}

func TestAMomentOnce(t *testing.T) {
	r := New(Config{})
	r.Open("u", "ns", "p")
	for range 3 {
		r.Once("u", Runs, "a")
		r.Once("u", Runs, "b")
	}
	if p, _ := r.Pod("ns", "p"); len(p.Steps) != 2 || !p.Steps[0].End.Equal(p.Steps[0].Begin) {
		t.Errorf("%+v", p.Steps)
	}
}

func TestAClosedLine(t *testing.T) {
	r := New(Config{})
	r.Open("u", "ns", "p")
	r.Close("u")
	r.Once("u", Runs, "a")
	r.Span("u", Bind, "", r.at(1), r.at(2))
	r.Begin("u", "StartContainer", "a").End("")
	if p, ok := r.Pod("ns", "p"); !ok || len(p.Steps) != 0 || p.Dropped != 0 {
		t.Errorf("%+v", p)
	}
}

func TestBounds(t *testing.T) {
	r := New(Config{Pods: 3, Steps: 4})
	var kept Ongoing
	for i := range 5 {
		uid := fmt.Sprint("u", i)
		r.Open(uid, "ns", fmt.Sprint("p", i))
		for s := range 6 {
			r.Span(uid, fmt.Sprint("s", s), "", r.at(s), r.at(s))
		}
		if i == 0 {
			r.Open("other", "ns", "other") // it is a pod as well
			kept = r.Begin("other", "long", "")
		}
	}
	for _, gone := range []string{"p0", "other", "p1"} {
		if _, ok := r.Pod("ns", gone); ok {
			t.Errorf("%s is still remembered", gone)
		}
	}
	for _, name := range []string{"p2", "p3", "p4"} {
		p, ok := r.Pod("ns", name)
		if !ok || len(p.Steps) != 4 || p.Steps[3].Name != "s3" || p.Dropped != 2 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if len(r.ring) != 3 || len(r.pods) != 3 {
		t.Errorf("%d and %d pods are held", len(r.ring), len(r.pods))
	}
	// What ends after its pod has gone is not another one's.
	kept.End("of another")
	for _, name := range []string{"p2", "p3", "p4"} {
		for _, s := range r.lines(t, name) {
			if s[len(s)-1] != ' ' {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// TestTheNewestOfAName: a pod that was made anew is the one that is asked for.
func TestTheNewestOfAName(t *testing.T) {
	r := New(Config{Pods: 3})
	for i := range 5 {
		r.Open(fmt.Sprint("u", i), "ns", "p")
		if p, ok := r.Pod("ns", "p"); !ok || p.UID != fmt.Sprint("u", i) {
			t.Errorf("after %d: %+v", i, p)
		}
	}
	if _, ok := r.Pod("other", "p"); ok {
		t.Error("one of another namespace")
	}
}

func TestUnknownPodsAndNobody(t *testing.T) {
	for _, r := range []*Recorder{nil, New(Config{})} {
		r.Once("u", Seen, "")
		r.Span("u", Bind, "", time.Now(), time.Now())
		r.Begin("u", "StartContainer", "a").End("")
		r.Close("u")
		if p, ok := r.Pod("ns", "p"); ok {
			t.Errorf("%+v", p)
		}
	}
	var nobody *Recorder
	nobody.Open("u", "ns", "p")
	if _, ok := nobody.Pod("ns", "p"); ok || !nobody.Began().IsZero() {
		t.Error("nobody remembers")
	}
}

// TestConcurrency is for the race detector, and for the bounds.
func TestConcurrency(t *testing.T) {
	r := New(Config{Pods: 8, Steps: 16})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				uid := fmt.Sprint("u", (w+i)%20)
				r.Open(uid, "ns", uid)
				s := r.Begin(uid, "StartContainer", "a")
				r.Once(uid, Runs, "a")
				r.Span(uid, Bind, "", r.at(1), r.at(2))
				s.End("")
				if p, ok := r.Pod("ns", uid); ok && len(p.Steps) > 16 {
					t.Errorf("%d steps", len(p.Steps))
				}
				if i%7 == 0 {
					r.Close(uid)
				}
			}
		})
	}
	wg.Wait()
	if len(r.ring) != 8 || len(r.pods) != 8 {
		t.Errorf("%d and %d pods are held", len(r.ring), len(r.pods))
	}
	for uid, e := range r.pods {
		if e.uid != uid {
			t.Errorf("%s is held as %s", e.uid, uid)
		}
	}
}

// TestNoGarbage: once there is room for a pod, steps and pods that take the place of older ones take no memory.
func TestNoGarbage(t *testing.T) {
	r := New(Config{Pods: 2})
	uids := []string{"u0", "u1", "u2", "u3"}
	i := 0
	start := func() {
		uid := uids[i%len(uids)]
		i++
		r.Open(uid, "ns", uid)
		for range usualSteps / 2 {
			s := r.Begin(uid, "StartContainer", "a")
			r.Once(uid, Runs, "a")
			s.End("")
		}
	}
	for range 2 * len(uids) {
		start()
	}
	if n := testing.AllocsPerRun(100, start); n > 0 {
		t.Errorf("%.1f allocations a pod", n)
	}
}

// BenchmarkStep is a step from its begin to its end, in a recorder that is full: each 24th one is of a new pod.
func BenchmarkStep(b *testing.B) {
	r := New(Config{})
	var uids []string
	for i := range 2 * DefaultPods {
		uids = append(uids, fmt.Sprint("u", i))
		r.Open(uids[i], "ns", uids[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		uid := uids[i/usualSteps%len(uids)]
		if i++; i%usualSteps == 1 {
			r.Open(uid, "ns", uid)
		}
		r.Begin(uid, "StartContainer", "a").End("")
	}
}

// BenchmarkMoment is what a status costs that tells nothing new of a pod with many steps.
func BenchmarkMoment(b *testing.B) {
	r := New(Config{})
	r.Open("u", "ns", "p")
	for i := range DefaultSteps - 1 {
		r.Span("u", fmt.Sprint("step ", i), "", time.Now(), time.Now())
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Once("u", Runs, "a")
	}
}
