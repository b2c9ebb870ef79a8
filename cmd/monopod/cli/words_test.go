package cli

import (
	"testing"
	"time"
)

func TestHuman(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 99_400: "99.4 kB", 99_600: "100 kB", 999_600: "1.0 MB", 12_345_678: "12.3 MB", 1 << 62: "4.6 EB"} {
		if got := HumanSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	for d, want := range map[time.Duration]string{time.Second: "just now", time.Minute: "1 minute ago", 50 * time.Hour: "2 days ago", 800 * 24 * time.Hour: "2 years ago"} {
		if got := HumanAge(now.Add(-d), now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := HumanAge(time.Time{}, now) + HumanAge(time.Unix(0, 0), now); got != "--" {
		t.Errorf("unknown ages: %q", got)
	}
}
