package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/config"
)

// TestHelpIsInGroups: `up --help` begins with what most people want, has every setting once, and fits a terminal.
func TestHelpIsInGroups(t *testing.T) {
	var out bytes.Buffer
	up := &cobra.Command{Use: "up", Run: func(*cobra.Command, []string) {}}
	AddConfiguration(up, config.All)
	up.Flags().Bool("ephemeral", false, "leave nothing")
	root := Root("monopod", "", "", "test", up)
	root.SetArgs([]string{"up", "--help"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	help := out.String()
	at := -1
	for _, title := range helpGroups() {
		i := strings.Index(help, "\n"+title+":\n")
		if i < at {
			t.Errorf("%q is missing or out of order", title)
		}
		at = i
	}
	first := -1
	for _, name := range commonFlags() {
		i := strings.Index(help, "\n      --"+name+" ")
		if i < first || i > strings.Index(help, "\n"+string(config.GroupNode)) {
			t.Errorf("--%s is not in its place among the common flags", name)
		}
		first = i
	}
	for _, s := range config.Settings() {
		if n := strings.Count(help, "\n      --"+s.Flag+" "); s.Flag != "" && n != 1 {
			t.Errorf("--%s is shown %d times", s.Flag, n)
		}
	}
	for line := range strings.SplitSeq(help, "\n") {
		if len(line) > defaultHelp+40 { // a word that is longer than its column is not broken
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}

// TestHelpStandsAlone: no flag's description needs the one before it to be understood.
func TestHelpStandsAlone(t *testing.T) {
	for _, s := range config.Settings() {
		for _, begin := range []string{"its ", "the same", "where they", "the last part of it"} {
			if strings.HasPrefix(s.Usage(), begin) {
				t.Errorf("--%s: %q says nothing by itself", s.Flag, s.Usage())
			}
		}
	}
}
