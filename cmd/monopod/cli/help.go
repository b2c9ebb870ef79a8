package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/config"
)

// commonFlags are those that most people want, in the order in which help shows them.
func commonFlags() []string {
	names := []string{"config", "ephemeral"}
	for _, s := range config.Settings() {
		if s.Common {
			names = append(names, s.Flag)
		}
	}
	return names
}

// The groups of help beside those of the settings: the first one, and the last one, which has what no other takes.
const (
	groupCommon = "Common flags"
	groupFlags  = "Other flags"
)

func helpGroups() []string {
	groups := []string{groupCommon}
	for _, g := range config.Groups() {
		groups = append(groups, string(g))
	}
	return append(groups, groupFlags)
}

// groupOf says where help shows a flag.
func groupOf(f *pflag.Flag) string {
	if slices.Contains(commonFlags(), f.Name) {
		return groupCommon
	}
	if s, is := f.Value.(*settingFlag); is {
		return string(s.Group)
	}
	return groupFlags
}

// groupHelp has a command with many settings show them in groups, the common ones first.
func groupHelp(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), groupedUsage(cmd, helpWidth(cmd.OutOrStdout())))
		return err
	})
}

func groupedUsage(cmd *cobra.Command, width int) string {
	groups := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		g := groupOf(f)
		if groups[g] == nil {
			groups[g] = pflag.NewFlagSet(g, pflag.ContinueOnError)
			groups[g].SortFlags = g != groupCommon
		}
		groups[g].AddFlag(f)
	})
	groups[groupCommon] = inOrder(groups[groupCommon], commonFlags())
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, title := range helpGroups() {
		if set := groups[title]; set != nil && set.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(width))
		}
	}
	return b.String()
}

func inOrder(set *pflag.FlagSet, names []string) *pflag.FlagSet {
	if set == nil {
		return nil
	}
	sorted := pflag.NewFlagSet("", pflag.ContinueOnError)
	sorted.SortFlags = false
	for _, name := range names {
		if f := set.Lookup(name); f != nil {
			sorted.AddFlag(f)
		}
	}
	return sorted
}

// The width of help: a terminal's, within what can be read; where there is none, that of a wide one.
const (
	narrowHelp  = 80
	defaultHelp = 120
	wideHelp    = 160
)

func helpWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return defaultHelp
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return defaultHelp
	}
	return min(max(int(size.Col), narrowHelp), wideHelp)
}
