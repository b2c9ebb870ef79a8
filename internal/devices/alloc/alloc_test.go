package alloc

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

func devices(names ...string) []inventory.Device {
	var ds []inventory.Device
	for _, n := range names {
		ds = append(ds, inventory.Device{Name: n})
	}
	return ds
}

func TestChoose(t *testing.T) {
	aliased := []inventory.Device{{Name: "GPU-a", Aliases: []string{"0"}}, {Name: "GPU-b", Aliases: []string{"1"}}}
	whole := inventory.Device{Name: "all", Whole: true}
	for _, tc := range []struct {
		name  string
		pool  Pool
		req   Request
		want  []string
		short *Shortage
	}{
		{name: "natural order, whatever the order of finding", pool: Pool{Devices: devices("w10", "w9", "w1")}, req: Request{Count: 2},
			want: []string{"w1", "w9"}},
		{name: "none asked", pool: Pool{Devices: devices("w0")}, want: []string{}},
		{name: "taken ones are left", pool: Pool{Devices: devices("w0", "w1", "w2"), Taken: []string{"w1"}}, req: Request{Count: 2},
			want: []string{"w0", "w2"}},
		{name: "too few", pool: Pool{Devices: devices("w0", "w1"), Taken: []string{"w1"}}, req: Request{Count: 2},
			short: &Shortage{Want: 2, Have: 1, Taken: 1}},
		{name: "no such resource", req: Request{Count: 1}, short: &Shortage{Want: 1}},
		{name: "what is gone takes no room", pool: Pool{Devices: devices("w0"), Taken: []string{"w7"}}, req: Request{Count: 1},
			want: []string{"w0"}},
		{name: "preferred first, in its order", pool: Pool{Devices: devices("w0", "w1", "w2")}, req: Request{Count: 3, Prefer: []string{"w2", "w1"}},
			want: []string{"w2", "w1", "w0"}},
		{name: "no more than asked of the preferred", pool: Pool{Devices: devices("w0", "w1")}, req: Request{Count: 1, Prefer: []string{"w1", "w0"}},
			want: []string{"w1"}},
		{name: "a preferred one that is taken, gone or named twice is passed over", pool: Pool{Devices: devices("w0", "w1"), Taken: []string{"w1"}},
			req: Request{Count: 1, Prefer: []string{"w1", "w5", "w5"}}, want: []string{"w0"}},
		{name: "unfit ones are left, and named", pool: Pool{Devices: devices("w0", "w1"), Unfit: map[string]string{"w0": "no node"}}, req: Request{Count: 2},
			short: &Shortage{Want: 2, Have: 1, Unfit: []string{"w0"}}},
		{name: "taken counts before unfit", pool: Pool{Devices: devices("w0"), Taken: []string{"w0"}, Unfit: map[string]string{"w0": "no node"}},
			req: Request{Count: 1}, short: &Shortage{Want: 1, Taken: 1}},
		{name: "an alias takes the device", pool: Pool{Devices: aliased, Taken: []string{"0"}}, req: Request{Count: 1}, want: []string{"GPU-b"}},
		{name: "an alias prefers the device", pool: Pool{Devices: aliased}, req: Request{Count: 1, Prefer: []string{"1"}}, want: []string{"GPU-b"}},
		{name: "a name for all is no unit", pool: Pool{Devices: append(devices("0"), whole)}, req: Request{Count: 2}, short: &Shortage{Want: 2, Have: 1}},
		{name: "a name for all alone is one", pool: Pool{Devices: []inventory.Device{whole}}, req: Request{Count: 1}, want: []string{"all"}},
		{name: "a name for all that is granted takes all", pool: Pool{Devices: append(devices("0", "1"), whole), Taken: []string{"all"}},
			req: Request{Count: 1}, short: &Shortage{Want: 1, Taken: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Choose(tc.pool, tc.req)
			if tc.short == nil {
				if err != nil || !slices.Equal(got, tc.want) {
					t.Fatalf("got %q, %v; want %q", got, err, tc.want)
				}
				return
			}
			var short *Shortage
			if !errors.As(err, &short) {
				t.Fatalf("got %q, %v; want a shortage", got, err)
			}
			if short.Error() != tc.short.Error() || !slices.Equal(short.Unfit, tc.short.Unfit) {
				t.Fatalf("got %+v, want %+v", short, tc.short)
			}
		})
	}
}

// Whatever is chosen is free, fit, distinct and as many as asked; and the order of the pool does not matter.
func TestChooseHoldsItsPromises(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c", "d", "e", "f10", "f9"}
	some := func() []string {
		var s []string
		for _, n := range names {
			if rnd.IntN(3) == 0 {
				s = append(s, n)
			}
		}
		return s
	}
	for range 2000 {
		pool := Pool{Devices: devices(some()...), Taken: some(), Unfit: map[string]string{}}
		for _, n := range some() {
			pool.Unfit[n] = "broken"
		}
		req := Request{Count: rnd.IntN(4), Prefer: some()}
		got, err := Choose(pool, req)
		if err == nil && len(got) != req.Count {
			t.Fatalf("%+v %+v: got %q", pool, req, got)
		}
		seen := map[string]bool{}
		for _, n := range got {
			if slices.Contains(pool.Taken, n) || pool.Unfit[n] != "" || seen[n] {
				t.Fatalf("%+v %+v: got %q", pool, req, got)
			}
			seen[n] = true
		}
		rnd.Shuffle(len(pool.Devices), func(i, j int) { pool.Devices[i], pool.Devices[j] = pool.Devices[j], pool.Devices[i] })
		again, _ := Choose(pool, req)
		if !slices.Equal(got, again) {
			t.Fatalf("%+v %+v: %q, then %q", pool, req, got, again)
		}
	}
}
