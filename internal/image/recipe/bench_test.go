package recipe

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"archive/tar"
	"fmt"
	digest "github.com/opencontainers/go-digest"
)

// BenchmarkRecord records a tar of 30,000 files; b.SetBytes counts the bytes of the tar.
func BenchmarkRecord(b *testing.B) {
	var entries []entry
	for i := range 30000 {
		entries = append(entries, file(fmt.Sprintf("usr/lib/python3/dist-packages/%d/file%d.py", i/100, i), strings.Repeat("x", 2000+i%20000)))
	}
	tarball := write(b, tar.FormatPAX, entries...)
	b.SetBytes(int64(len(tarball)))
	out := filepath.Join(b.TempDir(), "recipe")
	for b.Loop() {
		rec, err := Create(out)
		if err != nil {
			b.Fatal(err)
		}
		for p := tarball; len(p) > 0; {
			n := min(len(p), 32<<10)
			rec.Write(p[:n])
			p = p[n:]
		}
		if err := rec.Close(digest.FromString("")); err != nil {
			b.Fatal(err)
		}
	}
}

var _ io.Writer = (*Recorder)(nil)
