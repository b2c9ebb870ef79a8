package records

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCopies(t *testing.T) {
	dir := t.TempDir()
	type rec struct{ Name string }
	for _, name := range []string{"a", "b", "empty", "bad"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, write := range []struct{ dir, name string }{{"a", "old"}, {"a", "one"}, {"b", "two"}} {
		if err := WriteCopy(filepath.Join(dir, write.dir), rec{write.name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bad", copyName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCopies[rec](dir)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "bad")) {
		t.Errorf("the bad one is not named: %v", err)
	}
	if len(got) != 2 || got["a"].Name != "one" || got["b"].Name != "two" {
		t.Errorf("read %v", got)
	}
	if got, err := ReadCopies[rec](filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("no folder: %v, %v", got, err)
	}
}

func TestDigest(t *testing.T) {
	a := &cri.ContainerConfig{Labels: map[string]string{"x": "1", "y": "2"}}
	b := &cri.ContainerConfig{Labels: map[string]string{"y": "2", "x": "1"}}
	if Digest(a) != Digest(b) || Digest(a) == Digest(&cri.ContainerConfig{}) {
		t.Error("digests do not tell messages apart")
	}
}
