package bridge

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMarkOfABridge(t *testing.T) {
	lives, gone := filepath.Join(t.TempDir(), "runtime.db"), filepath.Join(t.TempDir(), "runtime.db")
	if err := os.WriteFile(lives, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for alias, want := range map[string]string{"": "", "uplink": "", "monopod ": "", "monopod x": "", "monopod " + gone: "", "monopod " + lives: lives} {
		if got := anotherIn(alias, "/own"); got != want {
			t.Errorf("%q: %q, want %q", alias, got, want)
		}
	}
	if got := anotherIn("monopod "+lives, lives); got != "" {
		t.Errorf("our own bridge is said to be that of %s", got)
	}
}
