package main

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatIsRunAndWhatNot(t *testing.T) {
	packages, left := sortOut([]string{"cmd/monopod", "internal/agent", "internal/agent/plan", "internal/agent/volumes/held", "internal/agents", "internal/executor", "test/vm"}, []string{"internal/executor"})
	want := []testPackage{{"cmd/monopod", false}, {"internal/agent/volumes/held", false}, {"internal/agents", false}, {"internal/executor", true}}
	if !slices.Equal(packages, want) {
		t.Errorf("run: %v, want %v", packages, want)
	}
	if len(left) != 2 || !strings.HasPrefix(left[0], "internal/agent (2 packages): speaks to") || !strings.HasPrefix(left[1], "test/vm (1 package): is the machine") {
		t.Errorf("not run: %q", left)
	}
}

// What is named in the lists exists, and every package with tests is in one machine or named with a reason.
func TestTheListsAreOfThisTree(t *testing.T) {
	t.Chdir("../../..")
	packages, left, err := choose(t.Context(), options{patterns: []string{"./..."}, tags: "seccomp netgo osusergo", cgo: "./cmd/monopod-executor ./internal/executor/..."})
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(apart) {
		t.Errorf("not run: %q, want something of each of %v", left, apart)
	}
	for _, name := range long {
		if !slices.ContainsFunc(packages, func(p testPackage) bool { return p.name == name }) {
			t.Errorf("%s, which takes long, is no package that is run", name)
		}
	}
	seen := map[string]int{}
	machines := divide(packages)
	for _, m := range machines {
		for _, p := range m {
			seen[p.name]++
			if p.cgo != (within(p.name, "internal/executor") || p.name == "cmd/monopod-executor") {
				t.Errorf("%s with cgo: %v", p.name, p.cgo)
			}
		}
	}
	for _, p := range packages {
		if seen[p.name] != 1 {
			t.Errorf("%s is in %d machines", p.name, seen[p.name])
		}
	}
	if first := machines[0]; len(first) != 1 || first[0].name != long[0] {
		t.Errorf("the first machine has %v, want %s alone", first, long[0])
	}
}

func TestAWrongCommandLineIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		part string
	}{
		{[]string{"-no-such-flag"}, 2, "no-such-flag"},
		{[]string{"-machines", "0"}, 2, "-machines 0"},
	} {
		code, err := run(t.Context(), tc.args)
		if code != tc.code || err == nil || !strings.Contains(err.Error(), tc.part) {
			t.Errorf("%q: exit code %d, %v; want %d and %q", tc.args, code, err, tc.code, tc.part)
		}
	}
}
