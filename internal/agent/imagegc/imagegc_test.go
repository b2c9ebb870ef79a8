package imagegc

import (
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// img is an image that was seen and used so long ago; used 0: never.
func img(id ids.ImageID, size uint64, seen, used time.Duration, change ...func(*Image)) Image {
	i := Image{ID: id, Size: size, FirstSeen: ago(seen)}
	if used > 0 {
		i.LastUsed = ago(used)
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func pinned(i *Image) { i.Pinned = true }
func inUse(i *Image)  { i.Used = true }

func said(images []Image) string {
	var all []string
	for _, i := range images {
		all = append(all, string(i.ID))
	}
	return strings.Join(all, " ")
}

func TestNeed(t *testing.T) {
	p := Policy{High: 85, Low: 80}
	for name, tc := range map[string]struct {
		policy Policy
		disk   Disk
		used   int
		want   uint64
	}{
		"empty":                      {p, Disk{1000, 1000}, 0, 0},
		"below the high threshold":   {p, Disk{1000, 160}, 84, 0},
		"rounded up to it":           {p, Disk{1000, 159}, 85, 41},
		"at it":                      {p, Disk{1000, 150}, 85, 50},
		"full":                       {p, Disk{1000, 0}, 100, 200},
		"between, on the way down":   {p, Disk{1000, 180}, 82, 0},
		"off":                        {Policy{High: 100, Low: 80}, Disk{1000, 0}, 100, 0},
		"all of it":                  {Policy{High: 1, Low: 0}, Disk{1000, 900}, 10, 100},
		"more available than it has": {p, Disk{1000, 2000}, 0, 0},
		"no size":                    {p, Disk{}, 0, 0},
		"large":                      {p, Disk{1 << 50, 1 << 40}, 100, 1<<50*20/100 - 1<<40},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.disk.UsedPercent(); got != tc.used {
				t.Errorf("used %d %%, want %d", got, tc.used)
			}
			if got := Need(tc.policy, tc.disk); got != tc.want {
				t.Errorf("need %d, want %d", got, tc.want)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	p := Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}
	for name, tc := range map[string]struct {
		images []Image
		need   uint64
		want   string
		bytes  uint64
	}{
		"nothing needed": {[]Image{img("a", 10, time.Hour, time.Hour)}, 0, "", 0},
		"least recently used first": {
			[]Image{img("a", 10, 3*time.Hour, time.Minute), img("b", 10, 3*time.Hour, time.Hour), img("c", 10, 3*time.Hour, 2*time.Hour)},
			20, "c b", 20,
		},
		"until it is enough": {
			[]Image{img("a", 100, time.Hour, 2*time.Hour), img("b", 10, time.Hour, time.Hour)}, 1, "a", 100,
		},
		"never used ones before all": {
			[]Image{img("a", 10, 3*time.Hour, 2*time.Hour), img("b", 10, time.Hour, 0)}, 15, "b a", 20,
		},
		"of two that were used together the older one": {
			[]Image{img("a", 10, time.Hour, time.Minute), img("b", 10, 2*time.Hour, time.Minute)}, 10, "b", 10,
		},
		"in the end by name": {[]Image{img("b", 10, time.Hour, 0), img("a", 10, time.Hour, 0)}, 20, "a b", 20},
		"pinned, used and young ones never": {
			[]Image{
				img("a", 10, time.Hour, 0, pinned), img("b", 10, time.Hour, 0, inUse), img("c", 10, time.Minute, 0),
				img("d", 10, 2*time.Minute, 0), img("e", 10, time.Hour, time.Hour, pinned, inUse),
			}, 1000, "d", 10,
		},
		"seen in the future, after the clock was set back": {[]Image{img("a", 10, -time.Hour, 0)}, 10, "", 0},
		"none": {nil, 10, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, bytes := Choose(p, tc.images, tc.need, now)
			if got := said(chosen); got != tc.want || bytes != tc.bytes {
				t.Errorf("chose %q of %d bytes, want %q of %d", got, bytes, tc.want, tc.bytes)
			}
		})
	}
}

func TestAged(t *testing.T) {
	images := []Image{
		img("used lately", 1, 5*time.Hour, time.Minute), img("unused", 1, 5*time.Hour, 2*time.Hour), img("longer", 1, 5*time.Hour, 3*time.Hour),
		img("pinned", 1, 5*time.Hour, 2*time.Hour, pinned), img("in use", 1, 5*time.Hour, 2*time.Hour, inUse),
		img("never used", 1, 2*time.Hour, 0), img("new", 1, time.Minute, 0),
	}
	if got := Aged(Policy{MaxAge: time.Hour}, images, now); said(got) != "never used longer unused" {
		t.Errorf("aged: %q", said(got))
	}
	if got := Aged(Policy{}, images, now); len(got) != 0 {
		t.Errorf("aged without a maximum age: %q", said(got))
	}
	if got := Aged(Policy{MaxAge: time.Second, MinAge: 24 * time.Hour}, images, now); len(got) != 0 {
		t.Errorf("aged, and all of them too young to go: %q", said(got))
	}
}
