// Command monopod is a Kubernetes node that stands on its own: `monopod up` runs all of it, the other commands run one
// role, or look at a node from outside.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker (see the Makefile).
var version = "0.0.0-dev"

func main() {
	runtime.MemProfileRate = 0 // nobody can fetch the profile, which takes memory of its own
	// The first SIGINT or SIGTERM asks for an orderly stop; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes the command line and returns the exit code: 0, 1 for a failure, 2 for a command line or a
// configuration that cannot be used.
func run(ctx context.Context, args []string) int {
	code, why := execute(ctx, args)
	if why != "" {
		fmt.Fprintf(os.Stderr, "monopod: %s\n", why)
	}
	return code
}

// execute returns what is wrong beside the code; empty: nothing.
func execute(ctx context.Context, args []string) (code int, why string) {
	root := newRootCommand()
	root.SetArgs(args)
	began := false
	noteBegin(root, &began)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0, ""
	}
	u := (*usageError)(nil)
	switch {
	case errors.As(err, &u):
		return 2, plainly(err)
	case !began: // a command that there is not, or a flag that it has to have
		return 2, fmt.Sprintf("%s%s; see '%s --help'", plainly(err), alike(cmd, args), cmd.CommandPath())
	}
	return 1, plainly(err)
}

// noteBegin has each of the commands note that it has begun: what goes wrong before that is a fault of the command line.
func noteBegin(cmd *cobra.Command, began *bool) {
	if do := cmd.RunE; do != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return do(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteBegin(sub, began)
	}
}

// alike says which commands are called nearly as the first of the words, if it is meant as one.
func alike(cmd *cobra.Command, words []string) string {
	at := slices.IndexFunc(words, func(w string) bool { return !strings.HasPrefix(w, "-") })
	if at < 0 || !cmd.HasSubCommands() {
		return ""
	}
	cmd.SuggestionsMinimumDistance = 2 // changes of a letter
	if names := cmd.SuggestionsFor(words[at]); len(names) > 0 {
		return " (did you mean " + strings.Join(names, " or ") + "?)"
	}
	return ""
}

// usageError is a fault of the command line or of the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "monopod",
		Short: "A Kubernetes node that stands on its own",
		Long: `Monopod is single-node Kubernetes in one process: API server, agent, runtime, DNS and service proxy. Pods run
through the Kubernetes API, with the machine's devices in them.

  monopod check                      does this machine have what a node needs?
  monopod up                         run the node: API server, agent, runtime
  monopod status                     show the state of the node
  monopod trace POD                  show what took the time of a pod's start
  monopod image load FILE            load an image from an archive
  monopod device ls                  list devices, and the containers that have them
  monopod dns enable                 make the names of services resolve on this machine
  monopod kubeconfig --server HOST   use kubectl from another machine

Each role also runs alone: 'monopod runtime' is a CRI runtime for any kubelet, 'monopod node' an agent for any
cluster, 'monopod apiserver' an API server for any client.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// What is alike is told in the words of this program.
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(newUpCommand(), newRuntimeCommand(), newAPIServerCommand(), newNodeCommand(),
		newStatusCommand(), newTraceCommand(), newDrainCommand(), newCheckCommand(), newFsckCommand(), newSnapshotCommand(), newResetCommand(), newImageCommand(), newDeviceCommand(), newVolumeCommand(), newCDICommand(), newDNSCommand(), newKubeconfigCommand(), newVersionCommand())
	completeNoFiles(root)
	return root
}

// noArgs refuses positional arguments by name.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("unknown argument %q%s; see '%s --help'", args[0], alike(cmd, args), cmd.CommandPath())}
	}
	return nil
}
