package recipe

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
)

// FuzzRecorder holds the recorder against archive/tar, by which layers are unpacked: whatever the bytes are, the items give them
// again, and each file's payload is where archive/tar finds it, under the same name.
func FuzzRecorder(f *testing.F) {
	for _, tarball := range corpus(f) {
		if len(tarball) < 64<<10 {
			f.Add(tarball)
		}
	}
	f.Add(gnuTar(f, func(dir string) { holes(f, dir, 9) }, "--sparse", "--format=gnu", "sparse"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, tarball []byte) {
		file := filepath.Join(dir, "recipe")
		rec, err := Create(file)
		if err != nil {
			t.Fatal(err)
		}
		rec.Write(tarball)
		if err := rec.Close(digest.FromBytes(tarball)); err != nil {
			t.Fatal(err)
		}
		if rec.refused != "" {
			if _, err := Open(file); err == nil {
				t.Fatal("a recipe that refuses was opened")
			}
			return
		}
		r, err := Open(file)
		if err != nil || r.Size != int64(len(tarball)) {
			t.Fatalf("size %d, %v", r.Size, err)
		}
		expected, whole := payloads(tarball)
		at := int64(0)
		err = r.each(func(it item) error {
			n := it.n
			switch it.kind {
			case itemBytes:
				n = int64(len(it.bytes))
				if !bytes.Equal(tarball[at:at+n], it.bytes) {
					t.Fatalf("other bytes at %d", at)
				}
			case itemZeros:
				if !bytes.Equal(tarball[at:at+n], make([]byte, n)) {
					t.Fatalf("no zeros at %d", at)
				}
			case itemFile:
				if len(expected) == 0 {
					if whole {
						t.Fatalf("archive/tar knows no file %q", it.bytes)
					}
					break
				}
				e := expected[0]
				expected = expected[1:]
				if e.name != string(it.bytes) || !bytes.Equal(e.cut(it.ranges), tarball[at:at+n]) {
					t.Fatalf("file %q (%d bytes, %v), archive/tar says %q (%d bytes)", it.bytes, n, it.ranges, e.name, len(e.data))
				}
			case itemEnd:
				return nil
			}
			at += n
			return nil
		})
		if err != nil || at != int64(len(tarball)) || (whole && len(expected) > 0) {
			t.Fatalf("%d of %d bytes, %d files are left, %v", at, len(tarball), len(expected), err)
		}
	})
}

type payload struct {
	name string
	data []byte
}

func (p payload) cut(ranges []span) []byte {
	if ranges == nil {
		return p.data
	}
	var out []byte
	for _, s := range ranges {
		if s.off+s.n > int64(len(p.data)) {
			return nil
		}
		out = append(out, p.data[s.off:s.off+s.n]...)
	}
	return out
}

// payloads are the regular files of a tar; whole says that it could be read to its end.
func payloads(tarball []byte) (out []payload, whole bool) {
	tr := tar.NewReader(bytes.NewReader(tarball))
	for {
		h, err := tr.Next()
		if err != nil {
			return out, errors.Is(err, io.EOF)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
			continue
		}
		base := path.Base(path.Clean("/" + h.Name))
		if strings.HasPrefix(base, ".wh.") || base == "/" {
			continue
		}
		if h.Size > 16<<20 {
			return out, false
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			return out, false
		}
		if len(data) > 0 {
			out = append(out, payload{path.Clean(h.Name), data})
		}
	}
}

// FuzzDecoder reads damaged recipes.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("B\x03abcZ\x09F\x05\x01a\x00F\x05\x01a\x01\x00\x05U\x02noE\x05\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{r: bufio.NewReader(bytes.NewReader(data))}
		for {
			it, err := d.next()
			if err != nil {
				return
			}
			if it.n < 0 || len(it.bytes) > maxName {
				t.Fatalf("%+v", it)
			}
		}
	})
}
