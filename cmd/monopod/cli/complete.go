package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completionPatience is how long a shell waits for the names that a node is asked for.
const completionPatience = 2 * time.Second

// CompleteNames has a shell complete a command's arguments, all of them or the first alone, by names that are asked for at that moment. Where they cannot be
// told, because no node runs say, nothing is offered: a file would be wrong.
func CompleteNames(cmd *cobra.Command, many bool, names func(context.Context) ([]string, error)) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		all, err := names(ctx)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(args, name) })
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// filePlaceholders are what the help calls the values and arguments that are files and folders. A shell completes these by itself.
var filePlaceholders = []string{"FILE", "DIR", "FOLDER", "PATH", "COMMAND"}

// completeNoFiles keeps a shell from offering files where none are meant, in a command and in those below it.
func completeNoFiles(cmd *cobra.Command) {
	names := func(text string) bool {
		return slices.ContainsFunc(filePlaceholders, func(p string) bool { return strings.Contains(text, p) })
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	arguments, _, _ = strings.Cut(arguments, "[-o")
	if cmd.ValidArgsFunction == nil && !names(arguments) && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, given := cmd.GetFlagCompletionFunc(f.Name)
			if placeholder, _ := pflag.UnquoteUsage(f); !given && !names(placeholder) {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // it is there
			}
		})
	}
	for _, sub := range cmd.Commands() {
		completeNoFiles(sub)
	}
}

// completeFormats has a shell complete the value of --output.
func completeFormats(cmd *cobra.Command, formats ...string) {
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // it is there
}
