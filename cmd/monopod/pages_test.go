package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandIsOnAPage: a page of the documentation has each command that somebody can give.
func TestEveryCommandIsOnAPage(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	var text strings.Builder
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(raw)
	}
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.HasParent() && !cmd.Hidden && !strings.Contains(text.String(), cmd.CommandPath()) && !among(text.String(), cmd) {
			t.Errorf("no page has %q: give it a row in docs/COMMANDS.md", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRootCommand())
}

// among: a row may have several commands of one part, `monopod dns enable|disable|status`.
func among(text string, cmd *cobra.Command) bool {
	for row := range strings.Lines(text) {
		_, after, ok := strings.Cut(row, cmd.Parent().CommandPath()+" ")
		words, _, _ := strings.Cut(after, " ")
		for word := range strings.SplitSeq(strings.ReplaceAll(words, `\|`, "|"), "|") {
			if ok && strings.Trim(word, "`") == cmd.Name() {
				return true
			}
		}
	}
	return false
}
