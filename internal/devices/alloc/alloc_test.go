package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

const widget = "example.com/widget"

func devices(names ...string) (ds []inventory.Device) {
	for _, n := range names {
		ds = append(ds, inventory.Device{Resource: widget, Name: n})
	}
	return ds
}

func held(names ...string) *Held {
	h := NewHeld()
	for _, n := range names {
		h.Add(Hardware{Resource: widget, Name: n})
	}
	return h
}

// pool has devices of any resources; unfit are names.
func pool(h *Held, unfit []string, all ...inventory.Device) Pool {
	return Pool{
		Devices: func(resource string) (of []inventory.Device) {
			for _, d := range all {
				if d.Resource == resource {
					of = append(of, d)
				}
			}
			return of
		},
		Held: h,
		Unfit: func(d inventory.Device) string {
			if slices.Contains(unfit, d.Name) {
				return "broken"
			}
			return ""
		},
	}
}

func names(ds []inventory.Device) []string {
	ns := []string{}
	for _, d := range ds {
		ns = append(ns, d.Name)
	}
	return ns
}

func TestTake(t *testing.T) {
	aliased := []inventory.Device{{Resource: widget, Name: "GPU-a", Aliases: []string{"0"}}, {Resource: widget, Name: "GPU-b", Aliases: []string{"1"}}}
	whole := inventory.Device{Resource: widget, Name: "all", Whole: true}
	sick := inventory.Device{Resource: widget, Name: "w0", Unhealthy: "no node"}
	for _, tc := range []struct {
		name   string
		pool   Pool
		n      int
		advice []string
		want   []string
		short  *Shortage
	}{
		{name: "in the pool's order", pool: pool(held(), nil, devices("w1", "w9", "w10")...), n: 2, want: []string{"w1", "w9"}},
		{name: "none asked", pool: pool(held(), nil, devices("w0")...), want: []string{}},
		{name: "taken ones are left", pool: pool(held("w1"), nil, devices("w0", "w1", "w2")...), n: 2, want: []string{"w0", "w2"}},
		{name: "too few", pool: pool(held("w1"), nil, devices("w0", "w1")...), n: 2, short: &Shortage{Want: 2, Have: 1, Taken: 1}},
		{name: "no such resource", pool: pool(held(), nil), n: 1, short: &Shortage{Want: 1}},
		{name: "what is gone takes no room", pool: pool(held("w7"), nil, devices("w0")...), n: 1, want: []string{"w0"}},
		{name: "a name of another resource takes no room", pool: pool(NewHeld(Hardware{Resource: "other", Name: "w0"}), nil, devices("w0")...), n: 1, want: []string{"w0"}},
		{name: "advice is followed", pool: pool(held(), nil, devices("w0", "w1", "w2")...), n: 2, advice: []string{"w2", "w1"}, want: []string{"w2", "w1"}},
		{name: "advice of another number is not", pool: pool(held(), nil, devices("w0", "w1", "w2")...), n: 1, advice: []string{"w2", "w1"}, want: []string{"w0"}},
		{name: "nor with a taken one", pool: pool(held("w2"), nil, devices("w0", "w1", "w2")...), n: 2, advice: []string{"w1", "w2"}, want: []string{"w0", "w1"}},
		{name: "nor with an unknown one", pool: pool(held(), nil, devices("w0", "w1")...), n: 1, advice: []string{"w5"}, want: []string{"w0"}},
		{name: "nor with one twice", pool: pool(held(), nil, devices("w0", "w1", "w2")...), n: 2, advice: []string{"w2", "w2"}, want: []string{"w0", "w1"}},
		{name: "unfit ones are left, and named", pool: pool(held(), []string{"w0"}, devices("w0", "w1")...), n: 2, short: &Shortage{Want: 2, Have: 1, Unfit: []string{"w0"}}},
		{name: "unhealthy ones too", pool: pool(held(), nil, sick), n: 1, short: &Shortage{Want: 1, Unfit: []string{"w0"}}},
		{name: "taken counts before unfit", pool: pool(held("w0"), []string{"w0"}, devices("w0")...), n: 1, short: &Shortage{Want: 1, Taken: 1}},
		{name: "an alias takes the device", pool: pool(held("0"), nil, aliased...), n: 1, want: []string{"GPU-b"}},
		{name: "an alias advises the device", pool: pool(held(), nil, aliased...), n: 1, advice: []string{"1"}, want: []string{"GPU-b"}},
		{name: "a name for all is no unit", pool: pool(held(), nil, append(devices("0"), whole)...), n: 2, short: &Shortage{Want: 2, Have: 1}},
		{name: "a name for all alone is one", pool: pool(held(), nil, whole), n: 1, want: []string{"all"}},
		{name: "a name for all that is granted takes all", pool: pool(held("all"), nil, append(devices("0", "1"), whole)...), n: 1, short: &Shortage{Want: 1, Taken: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Begin(tc.pool).Take(Main, widget, tc.n, tc.advice)
			if tc.short == nil {
				if err != nil || !slices.Equal(names(got), tc.want) {
					t.Fatalf("got %q, %v; want %q", names(got), err, tc.want)
				}
				return
			}
			var short *Shortage
			if !errors.As(err, &short) {
				t.Fatalf("got %q, %v; want a shortage", names(got), err)
			}
			if short.Error() != tc.short.Error() || !slices.Equal(short.Unfit, tc.short.Unfit) || short.Resource != widget {
				t.Fatalf("got %+v, want %+v", short, tc.short)
			}
		})
	}
}

// Hardware excludes other hardware that contains it or is contained in it, across resources and names; what only overlaps does not.
func TestHardwareExcludes(t *testing.T) {
	const card, part = "example.com/card", "example.com/part"
	device := func(resource, name string, nodes ...string) inventory.Device {
		return inventory.Device{Resource: resource, Name: name, Nodes: nodes}
	}
	for _, tc := range []struct {
		name     string
		held     []string
		d        inventory.Device
		excluded bool
	}{
		{"the same nodes under another name", []string{"/dev/a"}, device(part, "x", "/dev/a"), true},
		{"a part of what is held", []string{"/dev/a", "/dev/b"}, device(part, "x", "/dev/b"), true},
		{"the whole of which a part is held", []string{"/dev/b"}, device(part, "all", "/dev/a", "/dev/b", "/dev/c"), true},
		{"a sibling that shares a control node", []string{"/dev/a", "/dev/ctl"}, device(part, "x", "/dev/b", "/dev/ctl"), false},
		{"other nodes", []string{"/dev/a"}, device(part, "x", "/dev/b"), false},
		{"no nodes", []string{"/dev/a"}, device(part, "x"), false},
		{"nodes, where the holder has none", nil, device(part, "x", "/dev/a"), false},
		{"its name", nil, device(card, "c", "/dev/z"), true},
	} {
		h := NewHeld(Hardware{Resource: card, Name: "c", Nodes: tc.held})
		if got := h.Excludes(tc.d); got != tc.excluded {
			t.Errorf("%s: excluded is %t", tc.name, got)
		}
	}
	// In one pod as between pods.
	a := Begin(pool(NewHeld(), nil, device(card, "c", "/dev/a", "/dev/b"), device(part, "p0", "/dev/a"), device(part, "p1", "/dev/b")))
	if _, err := a.Take(Main, part, 1, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Take(Main, card, 1, nil); err == nil {
		t.Errorf("a pod has a partition, and got the card: %v", got)
	}
	if got, err := a.Take(Main, part, 1, nil); err != nil || got[0].Name != "p1" {
		t.Errorf("the other partition: %v, %v", got, err)
	}
}

// Of one resource's devices that exclude each other one is given.
func TestDevicesThatExcludeEachOther(t *testing.T) {
	all := []inventory.Device{{Resource: widget, Name: "ro", Nodes: []string{"/dev/a"}}, {Resource: widget, Name: "rw", Nodes: []string{"/dev/a"}}, {Resource: widget, Name: "x", Nodes: []string{"/dev/b"}}}
	for _, advice := range [][]string{nil, {"ro", "rw"}} {
		if got, err := Begin(pool(NewHeld(), nil, all...)).Take(Main, widget, 2, advice); err != nil || !slices.Equal(names(got), []string{"ro", "x"}) {
			t.Errorf("advice %q: got %q, %v", advice, names(got), err)
		}
	}
}

func TestInitContainersHandDown(t *testing.T) {
	a := Begin(pool(held(), nil, devices("w0", "w1", "w2", "w3", "w4")...))
	for _, step := range []struct {
		role   Role
		n      int
		advice []string
		want   string
	}{
		{Init, 2, nil, "[w0 w1]"},
		{Init, 1, nil, "[w0]"},
		{Sidecar, 1, nil, "[w0]"},                           // it goes on having it
		{Init, 3, []string{"w4", "w3", "w1"}, "[w1 w4 w3]"}, // what is handed down, and the advice
		{Main, 2, nil, "[w1 w4]"},                           // in the order in which they were handed down
		{Main, 2, []string{"w2", "w0"}, "[w3 w2]"},          // the advice is nobody's to follow
	} {
		if got, err := a.Take(step.role, widget, step.n, step.advice); err != nil || fmt.Sprint(names(got)) != step.want {
			t.Errorf("%s %d: got %q, %v; want %s", step.role, step.n, names(got), err, step.want)
		}
	}
	if got, err := a.Take(Main, widget, 1, nil); err == nil {
		t.Errorf("one more: %q", names(got))
	}
}

// Whatever is chosen is free, fit, distinct and as many as asked.
func TestTakeHoldsItsPromises(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := []string{"a", "b", "c", "d", "e", "f9", "f10"}
	some := func() (s []string) {
		for _, n := range all {
			if rnd.IntN(3) == 0 {
				s = append(s, n)
			}
		}
		return s
	}
	for range 2000 {
		taken, unfit, advice := some(), some(), some()
		a := Begin(pool(held(taken...), unfit, devices(some()...)...))
		mine := map[string]Role{}
		for _, role := range []Role{Init, Sidecar, Init, Main, Main} {
			n := rnd.IntN(3)
			got, err := a.Take(role, widget, n, advice)
			if err != nil {
				continue
			}
			if len(got) != n {
				t.Fatalf("%d asked, got %q", n, names(got))
			}
			seen := map[string]bool{}
			for _, name := range names(got) {
				before, had := mine[name]
				if slices.Contains(taken, name) || slices.Contains(unfit, name) || seen[name] || had && before != Init {
					t.Fatalf("taken %q, unfit %q: %s got %q, of which the pod has %v", taken, unfit, role, names(got), mine)
				}
				seen[name], mine[name] = true, role
			}
		}
	}
}

// BenchmarkTake is the choice for a pod with 8 devices on a node with 64 resources and 2,000 devices, half of them in use.
func BenchmarkTake(b *testing.B) {
	byResource := map[string][]inventory.Device{}
	h := NewHeld()
	for i := range 2000 {
		r := fmt.Sprintf("example.com/r%d", i%64)
		d := inventory.Device{Resource: r, Name: fmt.Sprintf("d%d", i), Nodes: []string{fmt.Sprintf("/dev/d%d", i)}}
		byResource[r] = append(byResource[r], d)
		if i%2 == 0 {
			h.addDevice(d)
		}
	}
	p := Pool{Devices: func(r string) []inventory.Device { return byResource[r] }, Held: h, Unfit: func(inventory.Device) string { return "" }}
	for b.Loop() {
		a := Begin(p)
		for i := range 8 {
			if _, err := a.Take(Main, fmt.Sprintf("example.com/r%d", i*2+1), 1, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
}
