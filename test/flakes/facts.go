package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pkg is a package with tests, with what decides about its rounds.
type pkg struct {
	Path string
	// Key is a hash of all that its tests are made of and run: the sources of this module in their test binary, with the versions of other
	// modules and of Go; and the same of the programs that they start.
	Key string
	// Containers says that its tests start containers.
	Containers bool
	Cgo        bool
}

// listed is what the go command tells of a package (go help list).
type listed struct {
	ImportPath, Dir, ForTest, Name                                   string
	Standard                                                         bool
	Module                                                           *module
	GoFiles, CgoFiles, CFiles, HFiles, SFiles, SysoFiles, EmbedFiles []string
	TestGoFiles, XTestGoFiles                                        []string
	Deps                                                             []string
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

const fields = "ImportPath,Dir,ForTest,Name,Standard,Module,GoFiles,CgoFiles,CFiles,HFiles,SFiles,SysoFiles,EmbedFiles,TestGoFiles,XTestGoFiles,Deps"

// What the sources of tests tell. A package starts containers when its tests start the executor or a node of test/harness; those of the
// executor's own parts do it without either. What a test reads of the repository, or builds of it, it names by a path.
var (
	startsExecutor = regexp.MustCompile(`\bharness\.(BuildExecutor|NewNode|StartNode)\(`)
	startsNode     = regexp.MustCompile(`\bharness\.(NewNode|StartNode|Bin)\(`)
	startsRunc     = regexp.MustCompile(`\bharness\.BuildRunc\(`)
	builds         = regexp.MustCompile(`"monopod\.dev/monopod/(cmd/[a-z-]+)"`)
	reads          = regexp.MustCompile(`"((?:\.\./)+(?:api|cmd|docs|examples|hack|internal|test|go\.mod|Makefile)\b[^"*]*)"`)
	hasTests       = regexp.MustCompile(`(?m)^func (Test[^a-z(]|Example|Fuzz)\w*\(`)
	mainOnly       = regexp.MustCompile(`(?m)^func TestMain\(.*$`)
)

// starters are packages whose tests start processes of containers themselves, without the executor.
var starters = []string{"internal/executor/spawn"}

// readers are packages whose tests read the sources of the whole module.
var readers = []string{"internal/archtest", "internal/runtime/conformance", "test/vm/all"}

// nodePrograms are what `make build` makes, and a node of test/harness runs.
var nodePrograms = []string{"cmd/monopod", "cmd/monopod-executor", "cmd/kubectl", "examples/hello", "examples/guestbook"}

// evidence is what the sources of a package's tests say.
type evidence struct {
	tests, containers, runc, everything bool
	programs, paths                     []string
}

// examine reads the sources of a package's tests.
func examine(path, sources string) evidence {
	e := evidence{
		tests:      hasTests.MatchString(mainOnly.ReplaceAllString(sources, "")),
		containers: startsExecutor.MatchString(sources) || slices.Contains(starters, path),
		runc:       startsRunc.MatchString(sources),
		everything: slices.Contains(readers, path),
	}
	if startsNode.MatchString(sources) {
		e.programs = append(e.programs, nodePrograms...)
	}
	if e.containers {
		e.programs = append(e.programs, "cmd/monopod-executor")
	}
	for _, m := range builds.FindAllStringSubmatch(sources, -1) {
		e.programs = append(e.programs, m[1])
	}
	for _, m := range reads.FindAllStringSubmatch(sources, -1) {
		e.paths = append(e.paths, m[1])
	}
	slices.Sort(e.programs)
	slices.Sort(e.paths)
	e.programs, e.paths = slices.Compact(e.programs), slices.Compact(e.paths)
	return e
}

// golist is a call of go list.
type golist struct {
	dir, tags string
	cgo       bool
}

func (g golist) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-tags", g.tags}, args...)...)
	if g.cgo {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1")
	} else {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	}
	cmd.Dir = g.dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// names are the import paths of packages.
func (g golist) names(ctx context.Context, patterns []string) ([]string, error) {
	out, err := g.run(ctx, append([]string{"-e", "--"}, patterns...)...)
	return strings.Fields(string(out)), err
}

// deps are packages with all that their tests and they are made of, by import path; a package that is compiled again for the tests of another
// one is there once for each.
func (g golist) deps(ctx context.Context, packages []string) (map[string]*listed, error) {
	all := map[string]*listed{}
	if len(packages) == 0 {
		return all, nil
	}
	out, err := g.run(ctx, append([]string{"-deps", "-test", "-json=" + fields, "--"}, packages...)...)
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &listed{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("what go list says: %w", err)
		}
		all[p.ImportPath] = p
	}
}

// find lists the packages of the patterns that have tests.
func (o options) find(ctx context.Context) ([]pkg, error) {
	plain, cgo := golist{dir: o.dir}, golist{dir: o.dir, tags: o.tags, cgo: true}
	names, err := cgo.names(ctx, o.patterns)
	if err != nil {
		return nil, err
	}
	cgoNames, err := cgo.names(ctx, o.cgo)
	if err != nil {
		return nil, err
	}
	root, err := cgo.run(ctx, "-m", "-f", "{{.Path}} {{.Dir}} {{.GoVersion}}")
	if err != nil {
		return nil, err
	}
	modulePath, rest, _ := strings.Cut(strings.TrimSpace(string(root)), " ")
	moduleDir, _, _ := strings.Cut(rest, " ")
	version, err := exec.CommandContext(ctx, "go", "version").Output()
	if err != nil {
		return nil, fmt.Errorf("go version: %w", err)
	}
	b := builder{module: modulePath, dir: moduleDir, base: string(version), files: map[string]string{}}
	var mine, theirs []string
	for _, n := range names {
		if slices.Contains(cgoNames, n) {
			theirs = append(theirs, n)
		} else {
			mine = append(mine, n)
		}
	}
	if b.plain, err = plain.deps(ctx, withPrograms(mine, modulePath, nodePrograms, cgoNames, false)); err != nil {
		return nil, err
	}
	if b.cgo, err = cgo.deps(ctx, withPrograms(theirs, modulePath, nodePrograms, cgoNames, true)); err != nil {
		return nil, err
	}
	return b.packages(mine, theirs)
}

// withPrograms adds the programs that tests start to packages of the same kind; those that the module does not have are left to
// whoever wants their files.
func withPrograms(names []string, modulePath string, programs, cgoNames []string, cgo bool) []string {
	for _, p := range programs {
		if name := modulePath + "/" + p; modulePath == ours && slices.Contains(cgoNames, name) == cgo && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ours is the module whose programs nodePrograms are.
const ours = "monopod.dev/monopod"

// fileName is an import path as the name of a file.
func fileName(path string) string {
	return strings.ReplaceAll(filepath.ToSlash(strings.TrimPrefix(path, ours+"/")), "/", "_")
}
