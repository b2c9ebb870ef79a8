package eviction

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bench is a watcher whose pods take what the test says.
type bench struct {
	*Watcher
	asked chan types.UID

	mu   sync.Mutex
	used map[types.UID]uint64
	errs map[types.UID]error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	b := &bench{asked: make(chan types.UID), used: map[types.UID]uint64{}, errs: map[types.UID]error{}}
	b.Watcher = New(Config{Log: slog.New(slog.DiscardHandler), Measure: func(ctx context.Context, pod *v1.Pod, _ Limits) (*Used, error) {
		select {
		case b.asked <- pod.UID:
		case <-ctx.Done():
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return &Used{Volumes: map[string]uint64{"d": b.used[pod.UID]}}, b.errs[pod.UID]
	}})
	b.period = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx)
	}()
	t.Cleanup(func() { <-ended })
	t.Cleanup(cancel)
	return b
}

func (b *bench) takes(uid types.UID, bytes uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[uid], b.errs[uid] = bytes, err
}

func (b *bench) measured(t *testing.T) types.UID {
	t.Helper()
	select {
	case uid := <-b.asked:
		return uid
	case <-time.After(time.Minute):
		t.Fatal("nothing is measured")
		return ""
	}
}

func limitedPod(uid types.UID) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "1Mi", "")}}}
	p.UID = uid
	return p
}

func TestWatcher(t *testing.T) {
	b := newBench(t)
	if v := b.Judge(&v1.Pod{}, nil); v != nil || len(b.pods) != 0 {
		t.Errorf("a pod without limits is watched: %v", v)
	}
	one := limitedPod("one")
	poked := make(chan struct{}, 1)
	if v := b.Judge(one, func() { poked <- struct{}{} }); v != nil {
		t.Errorf("judged unmeasured: %v", v)
	}
	for range 3 { // it is measured again and again, also after it could not be
		b.measured(t)
		b.takes("one", 2*mebi, errors.New("the disk is sick"))
	}
	if v := b.Judge(one, func() { poked <- struct{}{} }); v != nil {
		t.Errorf("judged by what was not measured: %v", v)
	}
	b.takes("one", 2*mebi, nil)
	for told := false; !told; {
		select {
		case <-b.asked:
		case <-poked:
			told = true
		case <-time.After(time.Minute):
			t.Fatal("nobody is told")
		}
	}
	if v := b.Judge(one, nil); v == nil || v.Reason != Reason {
		t.Errorf("%+v", v)
	}

	// What was judged is measured no more, and what is forgotten either.
	for _, uid := range []types.UID{"two", "three"} {
		b.Judge(limitedPod(uid), func() {})
	}
	b.Forget("two")
	for range 5 {
		if uid := b.measured(t); uid != "three" && uid != "two" {
			t.Errorf("%s is measured", uid)
		}
	}
	b.Forget("one")
	if v := b.Judge(one, func() {}); v != nil {
		t.Errorf("remembered after it was forgotten: %v", v)
	}
}

// Measuring takes a fiftieth of the time.
func TestRest(t *testing.T) {
	w := New(Config{})
	for _, c := range []struct{ took, least, most time.Duration }{
		{0, 7 * time.Second, 9 * time.Second},
		{100 * time.Millisecond, 7 * time.Second, 9 * time.Second},
		{2 * time.Second, 99 * time.Second, 101 * time.Second},
	} {
		if got := time.Until(w.after(c.took)); got < c.least || got > c.most {
			t.Errorf("after %v it rests for %v", c.took, got)
		}
	}
}
