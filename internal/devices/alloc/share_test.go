package alloc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// shares are those of one device, with a node of its own.
func shares(name string, n int) (ds []inventory.Device) {
	for i := 1; i <= n; i++ {
		d := inventory.Device{Resource: widget, Name: name, ShareOf: name, Nodes: []string{"/dev/" + name}}
		if i > 1 {
			d.Name = fmt.Sprint(name, "#", i)
		}
		ds = append(ds, d)
	}
	return ds
}

func share(of, name string) Hardware {
	return Hardware{Resource: widget, Name: name, ShareOf: of, Nodes: []string{"/dev/" + of}}
}

func TestShares(t *testing.T) {
	a, b := shares("a", 3), shares("b", 3)
	all := slices.Concat(a, b)
	whole := inventory.Device{Resource: widget, Name: "a", Nodes: []string{"/dev/a"}}
	for _, tc := range []struct {
		name  string
		held  []Hardware
		all   []inventory.Device
		n     int
		want  string
		short string
	}{
		{name: "one", all: all, n: 1, want: "[a]"},
		{name: "of another device, when one has a share", held: []Hardware{share("a", "a")}, all: all, n: 1, want: "[b]"},
		{name: "of that which the fewest have", held: []Hardware{share("a", "a"), share("b", "b"), share("b", "b#2")}, all: all, n: 1, want: "[a#2]"},
		{name: "those that are free again are given again", held: []Hardware{share("a", "a#2"), share("a", "a#3")}, all: a, n: 1, want: "[a]"},
		{name: "a container has one share of a device", all: all, n: 2, want: "[a b]"},
		{name: "and no more", all: all, n: 3, short: "3 wanted, 2 free (of 6, 0 in use, 4 of the same hardware)"},
		{name: "all are taken", held: []Hardware{share("a", "a"), share("a", "a#2"), share("a", "a#3")}, all: a, n: 1, short: "1 wanted, 0 free (of 3, 3 in use)"},
		{name: "who has it alone keeps it alone", held: []Hardware{share("", "a")}, all: a, n: 1, short: "1 wanted, 0 free (of 3, 3 in use)"},
		{name: "without nodes too", held: []Hardware{{Resource: widget, Name: "a"}}, all: a, n: 1, short: "1 wanted, 0 free (of 3, 3 in use)"},
		{name: "what is shared is not given alone", held: []Hardware{share("a", "a#2")}, all: []inventory.Device{whole}, n: 1, short: "1 wanted, 0 free (of 1, 1 in use)"},
		{name: "without nodes neither", held: []Hardware{{Resource: widget, Name: "a#2", ShareOf: "a"}}, all: []inventory.Device{whole}, n: 1, short: "1 wanted, 0 free (of 1, 1 in use)"},
		{name: "the same hardware of another resource", held: []Hardware{{Resource: "example.com/other", Name: "x", Nodes: []string{"/dev/a"}}}, all: a, n: 1, short: "1 wanted, 0 free (of 3, 3 in use)"},
		{name: "a device of another resource that is called the same", held: []Hardware{{Resource: "example.com/other", Name: "a", ShareOf: "a", Nodes: []string{"/dev/z"}}}, all: a, n: 1, want: "[a]"},
	} {
		got, err := Begin(pool(NewHeld(tc.held...), nil, tc.all...)).Take(Main, widget, tc.n, nil)
		var s *Shortage
		switch {
		case tc.short == "" && (err != nil || fmt.Sprint(names(got)) != tc.want):
			t.Errorf("%s: got %q, %v; want %s", tc.name, names(got), err, tc.want)
		case tc.short != "" && (!errors.As(err, &s) || s.Error() != tc.short):
			t.Errorf("%s: got %q, %v; want %s", tc.name, names(got), err, tc.short)
		}
	}
}

// The containers of a pod share like those of several pods, and what an init container had passes on.
func TestSharesInOnePod(t *testing.T) {
	a := Begin(pool(NewHeld(), nil, slices.Concat(shares("a", 2), shares("b", 2))...))
	for _, step := range []struct {
		role Role
		n    int
		want string
	}{
		{Init, 2, "[a b]"},
		{Sidecar, 1, "[a]"},
		{Main, 2, "[b a#2]"}, // handed down, and a share that its other one is not of
		{Main, 1, "[b#2]"},
	} {
		if got, err := a.Take(step.role, widget, step.n, nil); err != nil || fmt.Sprint(names(got)) != step.want {
			t.Errorf("%s %d: got %q, %v; want %s", step.role, step.n, names(got), err, step.want)
		}
	}
	if got, err := a.Take(Main, widget, 1, nil); err == nil {
		t.Errorf("one more: %q", names(got))
	}
}

// A device of another resource on the same node is not given while a share is held.
func TestASharedDeviceExcludesOthers(t *testing.T) {
	h := NewHeld(share("a", "a#2"))
	for _, tc := range []struct {
		d    inventory.Device
		want bool
	}{
		{inventory.Device{Resource: "example.com/part", Name: "x", Nodes: []string{"/dev/a"}}, true},
		{inventory.Device{Resource: "example.com/part", Name: "x", ShareOf: "x", Nodes: []string{"/dev/a"}}, true},
		{inventory.Device{Resource: "example.com/part", Name: "x", ShareOf: "a", Nodes: []string{"/dev/a"}}, true},
		{shares("a", 2)[0], false},
		{shares("a", 2)[1], true},
	} {
		if got := h.Excludes(tc.d); got != tc.want {
			t.Errorf("%+v: excluded is %t", tc.d, got)
		}
	}
}
