package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// SourceRoot is where packages under test are in the machine, by their path in the module, with its go.mod: what a
// test finds by a relative path on the host it finds in the machine, if it was put there.
const SourceRoot = "/src"

// modulePath is the module whose packages are built.
const modulePath = "monopod.dev/monopod"

// BuildInit builds the first process of machines of an architecture ("": NativeArch) into dir and returns its path.
func BuildInit(ctx context.Context, dir, architecture string) (string, error) {
	path := filepath.Join(dir, "init")
	return path, goToolFor(ctx, architecture, false, "build", "-trimpath", "-ldflags=-s -w", "-o", path, modulePath+"/test/vm/init")
}

// Tests are the tests of one package.
type Tests struct {
	// Package is its import path, or its directory as the go command takes it.
	Package string
	// Tags are build tags, in place of those of $GOFLAGS; Cgo builds with cgo, linked statically.
	Tags string
	Cgo  bool
	// Args are further arguments of the test binary, such as -test.run=REGEXP.
	Args []string
}

// Build compiles the tests into dir. It returns what to put into the machine, for Config.Files, and the shell command that
// runs them there.
func (t Tests) Build(ctx context.Context, dir string) (files map[string]string, command string, err error) {
	// Without tags of its own it has those of $GOFLAGS, so that what has been compiled for other commands serves it too.
	var tags []string
	if t.Tags != "" {
		tags = []string{"-tags=" + t.Tags}
	}
	out, err := goOutput(ctx, slices.Concat([]string{"list"}, tags, []string{"-f", "{{.Dir}}\n{{.ImportPath}}\n{{.Module.Dir}}", t.Package})...)
	if err != nil {
		return nil, "", err
	}
	facts := strings.Split(out, "\n")
	if len(facts) != 3 {
		return nil, "", fmt.Errorf("%s is not one package: %q", t.Package, out)
	}
	source, rel, module := facts[0], strings.TrimPrefix(facts[1], modulePath+"/"), facts[2]
	binary := filepath.Join(dir, strings.ReplaceAll(rel, "/", "-")+".test")
	ldflags := "-s -w"
	if t.Cgo {
		ldflags += " -linkmode external -extldflags -static"
	}
	// It is vetted by `make check`.
	args := slices.Concat([]string{"test", "-c", "-vet=off"}, tags, []string{"-ldflags=" + ldflags, "-o", binary, t.Package})
	if err := goTool(ctx, t.Cgo, args...); err != nil {
		return nil, "", err
	}
	at := filepath.Join(SourceRoot, rel)
	name := filepath.Base(rel) + ".test"
	files = map[string]string{filepath.Join(at, name): binary, filepath.Join(SourceRoot, "go.mod"): filepath.Join(module, "go.mod")}
	if testdata := filepath.Join(source, "testdata"); exists(testdata) {
		files[filepath.Join(at, "testdata")] = testdata
	}
	return files, fmt.Sprintf("echo '=== %s' && cd %s && ./%s -test.v %s", rel, at, name, quote(t.Args)), nil
}

// quote makes shell words of arguments.
func quote(args []string) string {
	var words []string
	for _, a := range args {
		words = append(words, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}

func goTool(ctx context.Context, cgo bool, args ...string) error {
	return goToolFor(ctx, NativeArch, cgo, args...)
}

func goToolFor(ctx context.Context, architecture string, cgo bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if cgo {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if architecture != "" && architecture != NativeArch {
		cmd.Env = append(cmd.Env, "GOARCH="+architecture)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func goOutput(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // or packages that need it would have no files
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(errOut.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
