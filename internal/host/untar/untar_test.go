package untar

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

type entry struct {
	tar.Header
	data string
}

func file(name, data string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1000, 0)}, data}
}

func dir(name string, mode int64, uid int) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode, Uid: uid, Gid: uid, ModTime: time.Unix(2000, 0)}}
}

func link(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777, ModTime: time.Unix(3000, 0)}}
}

func hard(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target, Mode: 0o644}}
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := tw.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// unpack applies the entries to a folder whose neighbour must stay as it is.
func unpack(t *testing.T, opts Options, entries ...entry) (string, Result, error) {
	t.Helper()
	outer := t.TempDir()
	root := filepath.Join(outer, "layer")
	outside := filepath.Join(outer, "outside")
	for _, d := range []string{root, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := Apply(t.Context(), root, bytes.NewReader(tarOf(t, entries...)), opts)
	left, rerr := os.ReadDir(outer)
	if rerr != nil || len(left) != 2 {
		t.Errorf("beside the layer there is %v, %v", left, rerr)
	}
	raw, rerr := os.ReadFile(filepath.Join(outside, "secret"))
	st, serr := os.Stat(filepath.Join(outside, "secret"))
	if rerr != nil || serr != nil || string(raw) != "untouched" || st.Mode() != 0o600 || st.Sys().(*syscall.Stat_t).Nlink != 1 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("a file outside was touched: %q %v %v", raw, rerr, serr)
	}
	if n, err := os.ReadDir(outside); err != nil || len(n) != 1 {
		t.Errorf("the folder outside has %v", n)
	}
	return root, res, err
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st
}

func TestKindsAndAttributes(t *testing.T) {
	capable := file("bin/ping", "p")
	capable.Mode = 0o4755
	capable.Uid, capable.Gid = 3, 4
	capable.PAXRecords = map[string]string{
		"SCHILY.xattr.security.capability":    "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"SCHILY.xattr.trusted.overlay.opaque": "y",
		"SCHILY.xattr.user.note":              "n",
	}
	fifo := entry{Header: tar.Header{Name: "run/fifo", Typeflag: tar.TypeFifo, Mode: 0o620, Uid: 9, ModTime: time.Unix(5000, 0)}}
	null := entry{Header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3}}
	var warned []string
	root, res, err := unpack(t, Options{Warn: func(msg string, args ...any) { warned = append(warned, msg) }},
		dir("./", 0o700, 5), dir("bin/", 0o1777, 7), capable, hard("bin/ping6", "bin/ping"), link("sbin", "bin"),
		file("sbin/late", "through the link"), fifo, null, file("implied/deep/er", "x"), file("big", strings.Repeat("b", 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if st := stat(t, root+"/bin"); st.Mode != unix.S_IFDIR|0o1777 || st.Uid != 7 || st.Mtim.Sec != 2000 {
		t.Errorf("bin: %+v", st)
	}
	ping := stat(t, root+"/bin/ping")
	if ping.Mode != unix.S_IFREG|0o4755 || ping.Uid != 3 || ping.Gid != 4 || ping.Nlink != 2 || ping.Mtim.Sec != 1000 {
		t.Errorf("ping: %+v", ping)
	}
	value := make([]byte, 64)
	if n, err := unix.Getxattr(root+"/bin/ping", "security.capability", value); err != nil || n != 20 {
		t.Errorf("file capability: %d %v", n, err)
	}
	if _, err := unix.Getxattr(root+"/bin/ping", "trusted.overlay.opaque", value); err != unix.ENODATA {
		t.Errorf("an attribute that steers the overlay: %v", err)
	}
	if len(warned) != 1 {
		t.Errorf("warned of %q", warned)
	}
	if stat(t, root+"/bin/ping6").Ino != ping.Ino {
		t.Error("the hard link is another file")
	}
	if target, err := os.Readlink(root + "/sbin"); err != nil || target != "bin" || stat(t, root+"/sbin").Mtim.Sec != 3000 {
		t.Errorf("sbin: %q %v", target, err)
	}
	if raw, err := os.ReadFile(root + "/bin/late"); err != nil || string(raw) != "through the link" {
		t.Errorf("late: %q %v", raw, err)
	}
	if st := stat(t, root+"/run/fifo"); st.Mode != unix.S_IFIFO|0o620 || st.Uid != 9 || st.Mtim.Sec != 5000 {
		t.Errorf("fifo: %+v", st)
	}
	if st := stat(t, root+"/dev/null"); st.Mode != unix.S_IFCHR|0o666 || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("null: %+v", st)
	}
	if st := stat(t, root); st.Mode&0o777 != 0o755 || st.Uid != 0 {
		t.Errorf("the layer's own directory: %+v", st)
	}
	if st := stat(t, root+"/big"); st.Size != 3<<20 {
		t.Errorf("big: %+v", st)
	}
	if got := strings.Join(res.Implied, " "); got != "/run /dev /implied /implied/deep" {
		t.Errorf("implied: %s", got)
	}
	if res.Entries != 10 || res.Bytes != 3<<20+1+1+16 {
		t.Errorf("%+v", res)
	}
}

func opaque(path string) bool {
	value := make([]byte, 4)
	n, err := unix.Getxattr(path, opaqueXattr, value)
	return err == nil && string(value[:n]) == "y"
}

func TestWhiteouts(t *testing.T) {
	white := func(name string) entry { return file(name, "") }
	root, _, err := unpack(t, Options{},
		white("etc/.wh.gone"), white("usr/.wh..wh..opq"), file("usr/new", "n"),
		white(".wh.file"), file("file", "back"), // a file of the layer itself is not hidden
		file("first", "f"), white(".wh.first"),
		white(".wh.again"), dir("again", 0o755, 0), file("again/x", "x"), // the new directory does not show the old one's files
		dir("later", 0o755, 0), white(".wh.later"),
		white(".wh.implied"), file("implied/x", "x"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if st := stat(t, root+"/etc/gone"); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("gone: %+v", st)
	}
	for _, d := range []string{"usr", "again", "later", "implied"} {
		if !opaque(filepath.Join(root, d)) {
			t.Errorf("%s is not opaque", d)
		}
	}
	if opaque(root+"/etc") || opaque(root) {
		t.Error("etc is opaque")
	}
	for name, want := range map[string]string{"usr/new": "n", "file": "back", "first": "f", "again/x": "x", "implied/x": "x"} {
		if raw, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(raw) != want {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
	if err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(p), ".wh.") {
			t.Errorf("%s is left", p)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Whatever a layer tries, it stays within its directory; unpack looks at the neighbour.
func TestNothingLeavesTheLayer(t *testing.T) {
	for name, c := range map[string]struct {
		entries []entry
		fails   bool
		inside  string // what must be in the layer afterwards
	}{
		"dots":                    {entries: []entry{file("../../outside/secret", "x")}, inside: "outside/secret"},
		"absolute":                {entries: []entry{file("/outside/secret", "x")}, inside: "outside/secret"},
		"through a link":          {entries: []entry{link("l", "../outside"), file("l/secret", "x")}, inside: "outside/secret"},
		"through an absolute one": {entries: []entry{link("l", "/proc/self/cwd"), file("l/secret", "x")}, inside: "proc/self/cwd/secret"},
		"over a link":             {entries: []entry{link("secret", "../outside/secret"), file("secret", "x")}, inside: "secret"},
		"directory over a link":   {entries: []entry{link("d", "../outside"), dir("d", 0o777, 5), file("d/y", "x")}, inside: "d/y"},
		"hard link to a link":     {entries: []entry{link("l", "../outside/secret"), hard("h", "l"), file("h", "x")}, inside: "h"},
		"mode through hard link":  {entries: []entry{link("l", "../outside/secret"), {Header: tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l", Mode: 0o777, Uid: 5}}}},
		"hard link out":           {entries: []entry{hard("h", "../outside/secret")}, fails: true},
		"hard link through link":  {entries: []entry{link("l", "../outside"), hard("h", "l/secret")}, fails: true},
		"hard link absolute":      {entries: []entry{hard("h", "/etc/passwd")}, fails: true},
		"hard link to root":       {entries: []entry{hard("h", "/")}, fails: true},
		"hard link to directory":  {entries: []entry{dir("d", 0o755, 0), hard("h", "d")}, fails: true},
		"whiteout of dots":        {entries: []entry{file("a/.wh...", "")}, fails: true},
		"whiteout of nothing":     {entries: []entry{file(".wh.", "")}, fails: true},
		"opaque through a link":   {entries: []entry{link("l", "../outside"), file("l/.wh..wh..opq", "")}, inside: "outside"},
		"whiteout through a link": {entries: []entry{link("l", "../outside"), file("l/.wh.secret", "")}, inside: "outside/secret"},
		"replaced parent":         {entries: []entry{dir("d", 0o755, 0), file("d/a", "x"), link("d", "../outside"), file("d/b", "x")}, inside: "outside/b"},
		"links in a circle":       {entries: []entry{link("a", "b"), link("b", "a"), file("a/x", "x")}, fails: true},
		"a file as a directory":   {entries: []entry{file("f", "x"), file("f/x", "x")}, fails: true},
		"owner out of range":      {entries: []entry{dir("d", 0o755, -1)}, fails: true},
		"device out of range":     {entries: []entry{{Header: tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 1 << 20}}}, fails: true},
		"unknown type":            {entries: []entry{{Header: tar.Header{Name: "d", Typeflag: 'Z'}}}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			root, _, err := unpack(t, Options{}, c.entries...)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if err != nil && !errdefs.IsInvalidArgument(err) {
				t.Errorf("the class of the error is another: %v", err)
			}
			if c.inside != "" {
				if _, err := os.Lstat(filepath.Join(root, c.inside)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestLimits(t *testing.T) {
	big := strings.Repeat("x", 600<<10)
	full := errors.New("full")
	asked := 0
	for name, opts := range map[string]Options{"bytes": {MaxBytes: 1 << 20}, "entries": {MaxEntries: 1}} {
		_, _, err := unpack(t, opts, file("a", big), file("b", big))
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := unpack(t, Options{MaxBytes: 2 << 20, MaxEntries: 2, Room: func() error { asked++; return nil }}, file("a", big), file("b", big)); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if _, _, err := unpack(t, Options{Room: func() error { return full }}, file("a", big), file("b", big)); !errors.Is(err, full) {
		t.Errorf("no room: %v", err)
	}
	// Headers alone, of an entry that never comes.
	long := tarOf(t, entry{Header: tar.Header{Name: strings.Repeat("n", 300), Typeflag: tar.TypeReg, Format: tar.FormatGNU}})
	if _, err := Apply(t.Context(), t.TempDir(), &endless{bytes: long[:1024]}, Options{MaxBytes: 8 << 20}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("headers without end: %v", err)
	}
	// A size that the tar only claims stops before anything is written.
	raw := tarOf(t, file("a", ""))
	huge := tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 62, Format: tar.FormatGNU}
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(&huge); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), t.TempDir(), bytes.NewReader(append(raw[:512:512], buf.Bytes()...)), Options{MaxBytes: 1 << 30}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a claimed size: %v", err)
	}
}

// endless gives the same bytes again and again.
type endless struct {
	bytes []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.bytes[e.at:])
	e.at = (e.at + n) % len(e.bytes)
	return n, nil
}

func TestDamagedTars(t *testing.T) {
	whole := tarOf(t, dir("d", 0o755, 0), file("d/a", strings.Repeat("a", 2000)))
	for _, n := range []int{100, 600, 1100, 2000} {
		if _, err := Apply(t.Context(), t.TempDir(), bytes.NewReader(whole[:n]), Options{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, err := Apply(t.Context(), t.TempDir(), strings.NewReader(strings.Repeat("no tar", 1000)), Options{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no tar: %v", err)
	}
	if _, err := Apply(t.Context(), t.TempDir(), strings.NewReader(""), Options{}); err != nil {
		t.Errorf("an empty layer: %v", err)
	}
}

// A layer that has a file in a directory of a lower layer, but no entry for the directory, does not change it.
func TestInherit(t *testing.T) {
	low, _, err := unpack(t, Options{}, dir("data", 0o750, 33), dir("data/in", 0o711, 34), dir("hidden", 0o700, 35), dir("hidden/x", 0o700, 36), dir("file", 0o700, 37))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(low+"/data", "user.note", []byte("n"), 0); err != nil {
		t.Fatal(err)
	}
	middle, _, err := unpack(t, Options{}, file("hidden/.wh..wh..opq", ""), file("file", "f"))
	if err != nil {
		t.Fatal(err)
	}
	top, res, err := unpack(t, Options{}, file("data/in/f", "x"), file("hidden/x/f", "x"), file("file/f", "x"), file("none/f", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Inherit(top, res.Implied, []string{middle, low}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{"data": {0o750, 33}, "data/in": {0o711, 34}, "hidden/x": {0o755, 0}, "file": {0o755, 0}, "none": {0o755, 0}} {
		if st := stat(t, filepath.Join(top, name)); st.Mode&0o7777 != want[0] || st.Uid != want[1] {
			t.Errorf("%s: %o, owner %d", name, st.Mode, st.Uid)
		}
	}
	if st := stat(t, top+"/data"); st.Mtim.Sec != 2000 {
		t.Errorf("its time is %v", st.Mtim)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(top+"/data", "user.note", value); err != nil || string(value[:n]) != "n" {
		t.Errorf("its attribute: %v", err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add(tarOf(f, dir("d", 0o755, 0), file("d/a", "a"), link("l", "../.."), file("l/x", "x"), hard("h", "d/a"), file(".wh.d", ""), file(".wh..wh..opq", "")))
	f.Add(tarOf(f, link("a", "/"), file("a/a/b", ""), dir("a", 0o7777, 1), hard("b", "a/../a")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		outer := t.TempDir()
		root := filepath.Join(outer, "layer")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		res, err := Apply(t.Context(), root, bytes.NewReader(raw), Options{MaxBytes: 1 << 20, MaxEntries: 100})
		if err == nil {
			err = Inherit(root, res.Implied, []string{root})
		}
		_ = err // what it says of such bytes does not matter, what it does is looked at
		if left, err := os.ReadDir(outer); err != nil || len(left) != 1 {
			t.Fatalf("beside the layer there is %v, %v", left, err)
		}
	})
}
