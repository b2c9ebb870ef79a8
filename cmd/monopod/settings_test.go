package main

import (
	"os"
	"strings"
	"testing"
)

// TestTheUnitIsAsDocumented: the page shows the unit that is installed.
func TestTheUnitIsAsDocumented(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/monopod.service")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/CONFIGURATION.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for line := range strings.Lines(string(unit)) {
		if line != "\n" {
			shown.WriteString("    ")
		}
		shown.WriteString(line)
	}
	if !strings.Contains(string(page), shown.String()) {
		t.Error("docs/CONFIGURATION.md does not show packaging/monopod.service as it is")
	}
	for _, line := range []string{"After=network-online.target\n", "Wants=network-online.target\n", "Type=notify\n", "KillMode=process\n", "WantedBy=multi-user.target\n"} {
		if !strings.Contains(string(unit), line) {
			t.Errorf("the unit lacks %s", line)
		}
	}
}
