package image

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// The one who came first goes; the one who joined gets the result.
func TestFlightOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flights{life: t.Context()}
		release := make(chan struct{})
		runs := 0
		work := func(ctx context.Context, _ *tracker) (Image, error) {
			runs++
			select {
			case <-release:
				return Image{ID: "x"}, nil
			case <-ctx.Done():
				return Image{}, ctx.Err()
			}
		}
		first, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() { _, err := f.do(first, "k", nil, work); results <- err }()
		synctest.Wait()
		go func() { _, err := f.do(t.Context(), "k", nil, work); results <- err }()
		synctest.Wait()
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller: %v", err)
		}
		close(release)
		if err := <-results; err != nil || runs != 1 {
			t.Errorf("the second caller: %v, %d runs", err, runs)
		}
		f.wait()
	})
}

// When nobody waits any more the work is cancelled, and the next caller does not get its error.
func TestAbandonedFlightIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flights{life: t.Context()}
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		go f.do(ctx, "k", nil, func(ctx context.Context, _ *tracker) (Image, error) {
			<-ctx.Done()
			<-hold // slow to give up
			return Image{}, ctx.Err()
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		img, err := f.do(t.Context(), "k", nil, func(context.Context, *tracker) (Image, error) { return Image{ID: "new"}, nil })
		if err != nil || img.ID != "new" {
			t.Errorf("%v %v", img, err)
		}
		close(hold)
		f.wait()
		if len(f.byKey) != 0 {
			t.Errorf("left: %v", f.byKey)
		}
	})
}

func TestKeyedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyedLock()
		if err := k.Lock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := k.Lock(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		go func() { got <- k.Lock(ctx, "a") }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait: %v", err)
		}
		go func() { got <- k.Lock(t.Context(), "a") }()
		synctest.Wait()
		k.Unlock("a")
		if err := <-got; err != nil {
			t.Error(err)
		}
		k.Unlock("a")
		k.Unlock("b")
		if len(k.locks) != 0 {
			t.Errorf("left: %v", k.locks)
		}
	})
}

func TestCredentialsGoOnlyWhereTheyBelong(t *testing.T) {
	for _, c := range []struct {
		server, host, registry string
		want                   bool
	}{
		{"", "registry.example", "registry.example", true},
		{"", "mirror.example", "registry.example", false},
		{"", "registry-1.docker.io", "docker.io", true},
		{"https://index.docker.io/v1/", "registry-1.docker.io", "docker.io", true},
		{"mirror.example:5000", "mirror.example:5000", "registry.example", true},
		{"mirror.example:5000", "registry.example", "registry.example", false},
		{"https://Registry.Example:443/v2/", "registry.example", "registry.example", true},
		{"registry.example:5000", "registry.example", "registry.example", false},
		{"registry.example", "registry.example:5000", "registry.example:5000", false},
	} {
		if got := (&Auth{ServerAddress: c.server}).appliesTo(c.host, c.registry); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:c", "h:1/a@sha256:" + string(make([]byte, 64)), "sha256:", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseAny(s)
		if err != nil {
			return
		}
		if p.id == "" && p.name == nil {
			t.Fatalf("%q is neither an id nor a name", s)
		}
		if p.name != nil {
			again, err := parseAny(p.name.String())
			if err != nil || again.name == nil || again.name.String() != p.name.String() {
				t.Fatalf("%q becomes %s, and that %v %v", s, p.name, again, err)
			}
		}
	})
}

func FuzzHostsFile(f *testing.F) {
	f.Add([]byte("server = \"https://a\"\n[host.\"http://b:1\"]\ncapabilities = [\"pull\"]\n"))
	f.Add([]byte("[host"))
	f.Fuzz(func(_ *testing.T, raw []byte) { _ = checkHostsFile(raw) })
}
