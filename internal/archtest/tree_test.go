package archtest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// largest is how long a file of the repository may be, in bytes. The longest one that is needed, generated definitions, has 720,000.
const largest = 1 << 20

// TestNothingBuiltIsCommitted: each file of the repository is text, and of a size that somebody could have written or generated. A program that `go build` leaves
// in the folder where it runs is committed with one `git commit -a` otherwise, and stays in everybody's clone for good.
func TestNothingBuiltIsCommitted(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(files) < 1000 {
		t.Fatalf("git ls-files names %d files", len(files))
	}
	head := make([]byte, 8000)
	for _, name := range files {
		f, err := os.Open(filepath.Join(root, name))
		if os.IsNotExist(err) { // removed, and not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.ReadFull(f, head)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Fatalf("%s: %v", name, err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		switch {
		case info.Size() > largest:
			t.Errorf("%s has %d bytes, and a file of the repository may have %d: remove it (git rm), or make it when it is needed", name, info.Size(), largest)
		case bytes.IndexByte(head[:n], 0) >= 0 && !strings.Contains(name, "/testdata/"):
			t.Errorf("%s is not text: what is built or packed stays out of the repository, but for inputs of tests in testdata", name)
		}
	}
}
