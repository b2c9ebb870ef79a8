package gotest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

// Command is a call of `go test`.
type Command struct {
	// Dir is where it runs; empty: here.
	Dir string
	// Env is added to the environment.
	Env []string
	// Flags are those of `go test`, without -json and -v.
	Flags    []string
	Packages []string
	// Stderr takes what `go test` prints to its standard error and, as there, the output of builds.
	Stderr io.Writer
}

// Args are the arguments of the go command.
func (c Command) Args() []string {
	return slices.Concat([]string{"test"}, c.Flags, c.Packages)
}

// Run runs the command and calls take with each package's result when the package has ended. It returns the command's exit status: 0
// when all tests passed, 1 when some failed; whatever else it is, the results are not all. A context that ends interrupts the command,
// as Ctrl-C does. The error is about the command itself, never about tests.
func (c Command) Run(ctx context.Context, take func(*Result)) (status int, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, c.Args()[1:]...)...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stderr = c.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start go test: %w", err)
	}
	packages := newCollector()
	broken := read(out, func(e Event) {
		switch {
		case e.Action == "build-output":
			_, _ = io.WriteString(c.Stderr, e.Output) // a terminal that has gone
		case e.Package != "":
			if r := packages.take(e); r != nil {
				take(r)
			}
		}
	}, c.Stderr)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), errors.Join(broken, err)
}
