package main

import (
	"os"
	"strings"
	"testing"
)

// TestFaultsAreInTheReadme, and can be named.
func TestFaultsAreInTheReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if line := "| `" + f.name + "` | " + f.what + " |\n"; !strings.Contains(string(readme), line) {
			t.Errorf("README.md lacks the line %s", line)
		}
	}
	if _, err := parse([]string{"--bad", "long-id,no-list"}); err != nil {
		t.Error(err)
	}
	if _, err := parse([]string{"--bad", "none-such"}); err == nil || !strings.Contains(err.Error(), "long-id, ") {
		t.Errorf("a fault that there is not: %v", err)
	}
}
