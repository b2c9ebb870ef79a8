package recipe

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
)

// unpack records a tar while it is unpacked, as a layer above another one or as the lowest.
func unpack(t testing.TB, tarball io.Reader, lowest bool) (file, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "fs")
	file = filepath.Join(filepath.Dir(dir), "recipe")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	rec, err := Create(file)
	if err != nil {
		t.Fatal(err)
	}
	digester := digest.Canonical.Digester()
	tee := io.TeeReader(tarball, io.MultiWriter(rec, digester.Hash()))
	var opts []archive.ApplyOpt
	if !lowest {
		opts = append(opts, archive.WithConvertWhiteout(archive.OverlayConvertWhiteout))
	}
	if _, err := archive.Apply(t.Context(), dir, tee, opts...); err != nil {
		t.Fatalf("unpacking: %v", err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(digester.Digest()); err != nil {
		t.Fatal(err)
	}
	return file, dir
}

func remake(ctx context.Context, file, dir string) ([]byte, error) {
	rec, err := Open(file)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := rec.WriteTar(ctx, &out, dir); err != nil {
		return nil, err
	}
	if int64(out.Len()) != rec.Size {
		return nil, fmt.Errorf("the size is told as %d, %d bytes were written", rec.Size, out.Len())
	}
	return out.Bytes(), nil
}

type entry struct {
	tar.Header
	data string
}

func write(t testing.TB, format tar.Format, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		if h.Typeflag != tar.TypeXGlobalHeader {
			h.Format, h.Size, h.Mode, h.ModTime = format, int64(len(e.data)), 0o644, time.Unix(1700000000, 0)
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func file(name, data string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg}, data}
}

func of(kind byte, name, link string) entry {
	return entry{tar.Header{Name: name, Typeflag: kind, Linkname: link, Devmajor: 1, Devminor: 3}, ""}
}

func xattr(e entry, key, value string) entry {
	e.PAXRecords = map[string]string{"SCHILY.xattr." + key: value}
	return e
}

// gnuTar runs tar in a directory that make fills.
func gnuTar(t testing.TB, fill func(dir string), args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	fill(dir)
	cmd := exec.Command("tar", append([]string{"-C", dir, "-cf", "-"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tar %v: %v: %s", args, err, &stderr)
	}
	return out
}

// holes makes a sparse file with n pieces of data.
func holes(t testing.TB, dir string, n int) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range n {
		if _, err := f.WriteAt(fmt.Appendf(nil, "piece %d", i), int64(i)*1<<20+8192); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(int64(n) << 20); err != nil {
		t.Fatal(err)
	}
}

// corpus is tars of many kinds, all of which can be unpacked.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	long := strings.Repeat("directory/", 30) + "file"
	var dirs []entry
	for i := 10; i < 300; i += 10 {
		dirs = append(dirs, of(tar.TypeDir, long[:i], ""))
	}
	many := []entry{of(tar.TypeDir, "many/", "")}
	for i := range 500 {
		many = append(many, file(fmt.Sprintf("many/%d", i), strings.Repeat("x", i*7)))
	}
	links := []entry{of(tar.TypeDir, "d/", ""), file("d/real", "contents"), of(tar.TypeLink, "d/hard", "d/real"), of(tar.TypeSymlink, "soft", "/d"),
		file("soft/through", "a parent that is a link"), of(tar.TypeSymlink, "up", "../../etc"), of(tar.TypeFifo, "fifo", ""), of(tar.TypeChar, "null", "")}
	whiteouts := []entry{of(tar.TypeDir, "d/", ""), of(tar.TypeDir, "opaque/", ""), file("d/.wh.gone", ""), file("opaque/.wh..wh..opq", ""),
		file("opaque/new", "new"), file("d/.wh.with", "a whiteout with a payload")}
	plain := write(t, tar.FormatUSTAR, file("a", "1"), file("b", strings.Repeat("b", 512)), file("c", ""))
	all := map[string][]byte{
		"empty tar":        write(t, tar.FormatUSTAR),
		"no bytes":         {},
		"ustar":            plain,
		"ustar prefix":     write(t, tar.FormatUSTAR, append(dirs[:9:9], file(long[:101]+"/x", "long"))...),
		"pax":              write(t, tar.FormatPAX, append(dirs[:30:30][:29], file(long, "long"), xattr(file("x", "attributes"), "user.k", "v\x00\n"))...),
		"gnu":              write(t, tar.FormatGNU, append(dirs[:29:29], file(long, "long"), of(tar.TypeSymlink, "link", long))...),
		"many":             write(t, tar.FormatPAX, many...),
		"links":            write(t, tar.FormatPAX, links...),
		"whiteouts":        write(t, tar.FormatPAX, whiteouts...),
		"root":             write(t, tar.FormatPAX, of(tar.TypeDir, "./", ""), file("./a", "dot"), file("b/../c", "clean"), file("/abs", "absolute")),
		"global header":    write(t, tar.FormatPAX, entry{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "hello"}}, ""}, file("a", "1")),
		"same dir twice":   write(t, tar.FormatPAX, of(tar.TypeDir, "d/", ""), file("d/a", "1"), of(tar.TypeDir, "d/", "")),
		"trailing zeros":   append(bytes.Clone(plain), make([]byte, 1<<20)...),
		"trailing garbage": append(bytes.Clone(plain), "this is no block, and \x00 not zero"...),
		"no end":           plain[:len(plain)-1024],
		"one zero block":   plain[:len(plain)-512],
		"odd end":          append(bytes.Clone(plain[:len(plain)-1024]), make([]byte, 2000)...),
	}
	for _, format := range []string{"gnu", "oldgnu", "pax", "ustar", "v7"} {
		all["tar "+format] = gnuTar(t, func(dir string) {
			for _, n := range []string{"d/e", "d/f"} {
				if err := os.MkdirAll(filepath.Join(dir, n), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, n, "file"), []byte(n), 0o640); err != nil {
					t.Fatal(err)
				}
			}
		}, "--format="+format, "d")
	}
	for _, v := range []string{"0.0", "0.1", "1.0"} {
		for _, n := range []int{1, 3, 60} {
			all[fmt.Sprintf("sparse pax %s %d", v, n)] = gnuTar(t, func(dir string) { holes(t, dir, n) }, "--sparse", "--format=pax", "--sparse-version="+v, "sparse")
		}
	}
	return all
}

func TestRemake(t *testing.T) {
	for name, tarball := range corpus(t) {
		for _, lowest := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, lowest), func(t *testing.T) {
				file, dir := unpack(t, bytes.NewReader(tarball), lowest)
				got, err := remake(t.Context(), file, dir)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, tarball) {
					t.Errorf("%d bytes came out, other ones than the %d that went in", len(got), len(tarball))
				}
			})
		}
	}
}

// However the bytes come, the tar comes out the same.
func TestPieces(t *testing.T) {
	for name, tarball := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			file, dir := unpack(t, pieces{bytes.NewReader(tarball)}, false)
			if got, err := remake(t.Context(), file, dir); err != nil || !bytes.Equal(got, tarball) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// pieces gives an odd number of bytes at a time.
type pieces struct{ r io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), 97)]) }

// The old GNU format of sparse files is unpacked by nobody who uses archive/tar as containerd does; it can be recorded.
func TestOldSparse(t *testing.T) {
	for _, n := range []int{1, 4, 5, 30} {
		dir := t.TempDir()
		tarball := gnuTar(t, func(src string) {
			holes(t, src, n)
			holes(t, dir, n)
		}, "--sparse", "--format=gnu", "sparse")
		file := filepath.Join(t.TempDir(), "recipe")
		rec, err := Create(file)
		if err != nil {
			t.Fatal(err)
		}
		rec.Write(tarball)
		if err := rec.Close(digest.FromBytes(tarball)); err != nil {
			t.Fatal(err)
		}
		if got, err := remake(t.Context(), file, dir); err != nil || !bytes.Equal(got, tarball) {
			t.Errorf("%d pieces: %d bytes, %v", n, len(got), err)
		}
		if has := len(contents(t, file)); has > 2000 {
			t.Errorf("%d pieces: the recipe has %d bytes: it holds a payload", n, has)
		}
	}
}

func TestSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var entries []entry
	for i := range 2000 {
		p := make([]byte, 3000)
		for j := range p {
			p[j] = byte(r.Uint32())
		}
		entries = append(entries, file(fmt.Sprintf("file%d", i), string(p)))
	}
	tarball := write(t, tar.FormatPAX, entries...)
	file, _ := unpack(t, bytes.NewReader(tarball), true)
	if n := len(contents(t, file)); n > len(tarball)/50 {
		t.Errorf("the recipe of a tar of %d bytes has %d", len(tarball), n)
	}
}

func TestWhatIsLost(t *testing.T) {
	tarball := write(t, tar.FormatPAX, file("a", "first"), file("b", "other"), file("a", "second"))
	file, dir := unpack(t, bytes.NewReader(tarball), true)
	if _, err := remake(t.Context(), file, dir); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("a file that is there twice: %v", err)
	}

	tarball = write(t, tar.FormatPAX, fileEntry("d", "contents"), fileEntry("e", "contents"))
	for name, change := range map[string]func(path string) error{
		`"d"`:     os.Remove,
		"digest ": func(p string) error { return os.WriteFile(p, []byte("otherOne"), 0o644) },
		"8 bytes": func(p string) error { return os.WriteFile(p, []byte("longer than it was"), 0o644) },
		"regular": func(p string) error { os.Remove(p); return os.Mkdir(p, 0o755) },
	} {
		file, dir := unpack(t, bytes.NewReader(tarball), true)
		if err := change(filepath.Join(dir, "d")); err != nil {
			t.Fatal(err)
		}
		if _, err := remake(t.Context(), file, dir); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A name that has become a link out of the directory leads nowhere.
	file, dir = unpack(t, bytes.NewReader(tarball), true)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "d")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, path); err != nil {
		t.Fatal(err)
	}
	if _, err := remake(t.Context(), file, dir); !errdefs.IsDataLoss(err) {
		t.Errorf("a link: %v", err)
	}
}

func fileEntry(name, data string) entry { return file(name, data) }

func TestRefused(t *testing.T) {
	plain := write(t, tar.FormatPAX, file("a", "1"))
	record := func(tarball []byte) error {
		t.Helper()
		file := filepath.Join(t.TempDir(), "recipe")
		rec, err := Create(file)
		if err != nil {
			t.Fatal(err)
		}
		rec.Write(tarball)
		if err := rec.Close(digest.FromBytes(tarball)); err != nil {
			t.Fatal(err)
		}
		_, err = Open(file)
		return err
	}
	for name, tarball := range map[string][]byte{
		"cut in a payload": plain[:513],
		"cut in a header":  plain[:100],
		"no tar":           []byte(strings.Repeat("this is no tar at all. ", 100)),
	} {
		if err := record(tarball); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stray := make([]byte, 65<<20)
	for i := range stray {
		stray[i] = 1
	}
	if err := record(append(plain, stray...)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("too much behind the end: %v", err)
	}
}

func TestDamagedRecipe(t *testing.T) {
	file, dir := unpack(t, bytes.NewReader(corpus(t)["many"]), true)
	good := contents(t, file)
	if _, err := Open(filepath.Join(dir, "none")); !errdefs.IsNotFound(err) {
		t.Errorf("no recipe: %v", err)
	}
	for name, bad := range map[string][]byte{
		"empty":          {},
		"cut":            good[:len(good)/2],
		"magic":          append([]byte("X"), good[1:]...),
		"cut at the end": good[:len(good)-4],
		"a bit":          append(append(bytes.Clone(good[:len(good)/2]), good[len(good)/2]^4), good[len(good)/2+1:]...),
	} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := remake(t.Context(), file, dir); !errdefs.IsDataLoss(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := remake(ctx, file, dir); err == nil {
		t.Error("a cancelled one ended well")
	}
}

func contents(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
