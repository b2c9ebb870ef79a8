// Package cli is what all commands share: how a command line ends, formats of output, completion, the flags of settings, and connections to a running node.
package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Execute executes a command line of the root command. It returns the exit code, which is 0, 1 for a failure or 2 for a command line or a configuration that cannot be used,
// and what is wrong; empty: nothing.
func Execute(ctx context.Context, root *cobra.Command, args []string) (code int, why string) {
	root.SetArgs(args)
	began := false
	noteBegin(root, &began)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0, ""
	}
	u := (*UsageError)(nil)
	switch {
	case errors.As(err, &u):
		return 2, Plainly(err)
	case !began: // a command that there is not, or a flag that it has to have
		return 2, fmt.Sprintf("%s%s; see '%s --help'", Plainly(err), alike(cmd, args), cmd.CommandPath())
	}
	return 1, Plainly(err)
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

// UsageError is a fault of the command line or of the configuration.
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap is for errors.Is and errors.As.
func (e *UsageError) Unwrap() error { return e.Err }

// NoArgs refuses positional arguments by name.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &UsageError{Err: fmt.Errorf("unknown argument %q%s; see '%s --help'", args[0], alike(cmd, args), cmd.CommandPath())}
	}
	return nil
}

// Root is the command that has all the others.
func Root(name, short, long, version string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Long:          long,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// What is alike is told in the words of this program.
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(commands...)
	completeNoFiles(root)
	return root
}
