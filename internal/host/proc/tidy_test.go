package proc

import (
	"context"
	"runtime/metrics"
	"testing"
	"time"
)

func TestWorthTidying(t *testing.T) {
	for _, c := range []struct {
		name                 string
		sinceLook, sinceTidy uint64
		want                 bool
	}{
		{"after a burst", 1000, 30 << 20, true},
		{"in the middle of it", tidyQuiet, 30 << 20, false},
		{"hardly anything was done", 1000, tidyGarbage - 1, false},
		{"just enough", tidyQuiet - 1, tidyGarbage, true},
	} {
		if got := worthTidying(c.sinceLook, c.sinceTidy); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPaceOf(t *testing.T) {
	for _, c := range []struct {
		name       string
		live, room uint64
		want       int
	}{
		{"before the first collection", 0, 64 << 20, maxPace},
		{"a tiny heap", 4 << 20, 64 << 20, maxPace},
		{"a small one", 32 << 20, 64 << 20, 200},
		{"a large one", 512 << 20, 64 << 20, defaultPace},
		{"no room", 4 << 20, 0, defaultPace},
	} {
		if got := paceOf(c.live, c.room); got != c.want {
			t.Errorf("%s: %d%%, want %d%%", c.name, got, c.want)
		}
	}
}

// The garbage of a burst is gone soon after it, though the collector alone would let it be.
func TestTidy(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Tidy(ctx, 0)
	}()
	kept := make([][]byte, 64) // so that the next collection is far away
	for i := range kept {
		kept[i] = make([]byte, 1<<20)
	}
	objects := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	full := objects()
	clear(kept)
	kept[0] = make([]byte, tidyGarbage) // or all was looked at, and found in use, just before
	for deadline := time.Now().Add(time.Minute); objects() > full/2; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bytes are still there", objects(), full)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the runtime tells nobody of a collection
	}
	cancel()
	<-ended
}
