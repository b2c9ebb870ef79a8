package harness

import (
	"os/exec"
	"strings"
	"testing"
)

// NftLists has the program nft list all rules of the calling thread's network namespace, by names as well, and says which of these words it does not say. What it
// cannot put into words is no failure: it says so, and goes on.
func NftLists(t testing.TB, words ...string) {
	t.Helper()
	for _, what := range []string{"tables", "ruleset"} {
		said, err := exec.Command("nft", "list", what).CombinedOutput()
		if err != nil {
			t.Errorf("nft list %s: %v: %s", what, err, said)
		}
		for _, w := range words {
			if (what == "ruleset" || strings.HasPrefix(w, "table ")) && !strings.Contains(string(said), w) {
				t.Errorf("nft list %s does not say %q: %s", what, w, said)
			}
		}
	}
}
