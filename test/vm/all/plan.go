package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const modulePath = "monopod.dev/monopod/"

// partApart is a part of the tree whose tests are not run in the machine, with the reason, but for those of parts of it.
type partApart struct {
	part, why string
	but       []string
}

func (a partApart) has(pkg string) bool {
	return within(pkg, a.part) && !slices.ContainsFunc(a.but, func(part string) bool { return within(pkg, part) })
}

// apart are the parts whose tests are not run in the machine. Whatever is not named here is.
var apart = []partApart{
	{part: "internal/apiserver", why: "uses nothing of the kernel but files and loopback; the nodes of test/e2e have all of it"},
	{part: "internal/controllers", why: "speaks to an API server alone; the nodes of test/e2e have all of it"},
	{part: "internal/agent", why: "speaks to an API and a runtime, and reads files; the nodes of test/e2e have all of it", but: []string{"internal/agent/volumes", "internal/agent/podstats"}},
	{part: "internal/storage", why: "speaks to an API server, whose etcd is too slow here; what it does to disks is in hold, which is run, and in the nodes of test/e2e", but: []string{"internal/storage/hold"}},
	{part: "internal/archtest", why: "reads the sources, by the go command"},
	{part: "internal/runtime/conformance", why: "reads the sources and the CRI's, by the go command"},
	{part: "test/bench", why: "measures; emulated figures mean nothing"},
	{part: "test/harness", why: "compares go.mod files"},
	{part: "test/run", why: "runs the go command, as test/flakes does"},
	{part: "test/flakes", why: "runs the go command"},
	{part: "test/vm", why: "is the machine"},
	{part: "test/podman", why: "fetches podman from Debian"},
	{part: "test/containerd", why: "has Debian's containerd, which the machine has not"},
}

// long are the packages that take minutes, the longest first. Each has a machine of its own; the others share some.
var long = []string{"internal/runtime", "internal/executor", "test/e2e", "test/crash", "test/escape", "internal/network/cni", "internal/network/bridge", "internal/image"}

// together is how many of the others share a machine: few enough that the machines end at about the same time.
const together = 9

// testPackage is a package with tests.
type testPackage struct {
	name string // below the module
	cgo  bool
}

// choose lists the packages that are run, and those that are not with the reasons.
func choose(ctx context.Context, o options) (packages []testPackage, left []string, err error) {
	names, err := withTests(ctx, o, o.patterns...)
	if err != nil {
		return nil, nil, err
	}
	cgo, err := withTests(ctx, o, strings.Fields(o.cgo)...)
	if err != nil {
		return nil, nil, err
	}
	packages, left = sortOut(names, cgo)
	return packages, left, nil
}

func sortOut(names, cgo []string) (packages []testPackage, left []string) {
	reasons := map[string]int{}
	for _, name := range names {
		i := slices.IndexFunc(apart, func(a partApart) bool { return a.has(name) })
		if i >= 0 {
			reasons[apart[i].part]++
			continue
		}
		packages = append(packages, testPackage{name, slices.Contains(cgo, name)})
	}
	for _, a := range apart {
		if n := reasons[a.part]; n > 0 {
			left = append(left, fmt.Sprintf("%s (%s): %s", a.part, plural(n, "package"), a.why))
		}
	}
	return packages, left
}

func within(pkg, part string) bool { return pkg == part || strings.HasPrefix(pkg, part+"/") }

// withTests lists the packages that have tests, below the module.
func withTests(ctx context.Context, o options, patterns ...string) ([]string, error) {
	args := append([]string{"list", "-tags", o.tags, "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // or packages that need it would have no files
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	var names []string
	for _, path := range strings.Fields(string(out)) {
		names = append(names, strings.TrimPrefix(path, modulePath))
	}
	return names, nil
}

// divide puts the packages into machines, in the order in which these are to be started: what takes longest first.
func divide(packages []testPackage) [][]testPackage {
	var machines [][]testPackage
	var others []testPackage
	for _, p := range packages {
		if !slices.Contains(long, p.name) {
			others = append(others, p)
		}
	}
	for _, name := range long {
		if i := slices.IndexFunc(packages, func(p testPackage) bool { return p.name == name }); i >= 0 {
			machines = append(machines, packages[i:i+1])
		}
	}
	return slices.AppendSeq(machines, slices.Chunk(others, together))
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func list(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}
