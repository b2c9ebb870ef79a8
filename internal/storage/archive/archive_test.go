package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func aHead() Head {
	return Head{Taken: time.Unix(1_700_000_000, 0).UTC(), AtOnce: true, Claim: Claim{
		Namespace: "a", Name: "c", Class: "local", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Size: resource.MustParse("1Gi"),
	}}
}

// limits are more than any of these tests' archives needs.
var limits = Limits{Bytes: 1 << 30, Entries: 1 << 16}

func opened(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// written is the archive of a directory.
func written(t *testing.T, dir string) ([]byte, Result) {
	t.Helper()
	var buf bytes.Buffer
	result, err := Write(t.Context(), &buf, aHead(), opened(t, dir))
	must(t, err)
	return buf.Bytes(), result
}

// read unpacks an archive into a new directory.
func read(t testing.TB, raw []byte, l Limits) (string, Result, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "to")
	must(t, os.Mkdir(dir, 0o700))
	r, err := Open(bytes.NewReader(raw))
	if err != nil {
		return dir, Result{}, err
	}
	result, err := r.Tree(t.Context(), dir, l)
	return dir, result, err
}

// aTree makes a directory with one of each of what files can be.
func aTree(t *testing.T) string {
	t.Helper()
	from := filepath.Join(t.TempDir(), "from")
	old := time.Unix(1_000_000_000, 5000)
	must(t, os.MkdirAll(from+"/d/e", 0o755), os.WriteFile(from+"/d/e/f", []byte("content"), 0o644), os.Link(from+"/d/e/f", from+"/d/second"),
		os.Symlink("/etc/passwd", from+"/abs"), os.Symlink("../../../up", from+"/d/up"), unix.Mkfifo(from+"/pipe", 0o622), os.WriteFile(from+"/.wh.file", []byte("white"), 0o600),
		os.WriteFile(from+"/empty", nil, 0o600), os.WriteFile(from+"/"+strings.Repeat("n", 200)+"\xff", []byte("x"), 0o600), os.WriteFile(from+"/zeros", make([]byte, 100<<10), 0o600))
	sparse, err := os.Create(from + "/sparse")
	must(t, err)
	for _, at := range []int64{0, 5 << 20, 64 << 20} {
		_, err = sparse.WriteAt([]byte("some data"), at)
		must(t, err)
	}
	must(t, sparse.Truncate(1<<30), sparse.Close())
	for name, size := range map[string]int64{"hole": 10 << 20, "middle": 20 << 20} {
		f, err := os.Create(filepath.Join(from, name))
		must(t, err, f.Truncate(size))
		if name == "middle" {
			_, err = f.WriteAt([]byte("end"), size-3)
		}
		must(t, err, f.Close())
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(from, 1000, 3_000_000), os.Lchown(from+"/abs", 7, 8), os.Chown(from+"/d/e/f", 3, 4_000_000_000), os.Chmod(from+"/d/e/f", 0o640|os.ModeSetuid|os.ModeSetgid),
			unix.Mknod(from+"/whiteout", unix.S_IFCHR, 0),
			unix.Setxattr(from+"/d/second", "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	}
	// An ACL: user 1234 may read.
	acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xd2, 4, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	must(t, unix.Setxattr(from+"/empty", "system.posix_acl_access", acl, 0), unix.Setxattr(from+"/d", "user.note", []byte("a\x00b=c"), 0))
	must(t, unix.Chmod(from, 0o2770), unix.Chmod(from+"/d", 0o1751), os.Chtimes(from+"/d/e/f", old, old), os.Chtimes(from+"/d", old, old), os.Chtimes(from, old, old))
	return from
}

// described is what there is in a directory, a line each.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		what := fmt.Sprintf("mode %o owner %d:%d mtime %d.%d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		if !e.IsDir() {
			what += fmt.Sprintf(" links %d size %d", st.Nlink, st.Size)
		}
		if e.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			must(t, err)
			what += " to " + target
		}
		for _, name := range []string{"user.note", "security.capability", "system.posix_acl_access"} {
			value := make([]byte, 100)
			if n, err := unix.Lgetxattr(path, name, value); err == nil {
				what += fmt.Sprintf(" %s=%x", name, value[:n])
			}
		}
		if e.Type().IsRegular() && st.Size < 1<<20 {
			raw, err := os.ReadFile(path)
			must(t, err)
			what += fmt.Sprintf(" content %q", raw)
		}
		all[strings.TrimPrefix(path, dir)] = what
		return nil
	}))
	return all
}

// TestWhatIsWrittenIsRead, with all that files have, also by GNU tar.
func TestWhatIsWrittenIsRead(t *testing.T) {
	from := aTree(t)
	raw, result := written(t, from)
	if len(raw) > 2<<20 || result.Bytes > 1<<20 {
		t.Errorf("an archive of holes has %d bytes, %d of them content", len(raw), result.Bytes)
	}
	to, got, err := read(t, raw, limits)
	must(t, err)
	if got.Entries != result.Entries || len(got.LeftOut)+len(result.LeftOut) > 0 {
		t.Errorf("written was %+v, read %+v", result, got)
	}
	gnu := t.TempDir()
	file := filepath.Join(t.TempDir(), "a.tar")
	must(t, os.WriteFile(file, raw, 0o600))
	if out, err := exec.Command("tar", "-x", "-p", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-C", gnu, "-f", file).CombinedOutput(); err != nil {
		t.Errorf("tar: %v\n%s", err, out)
	}
	want := described(t, from)
	for name, dir := range map[string]string{"by us": to, "by tar": filepath.Join(gnu, "data")} {
		is := described(t, dir)
		for path, what := range want {
			if is[path] != what {
				t.Errorf("%s: %q is\n%s, want\n%s", name, path, is[path], what)
			}
		}
		if len(is) != len(want) {
			t.Errorf("%s: %d files, want %d", name, len(is), len(want))
		}
		f := opened(t, filepath.Join(dir, "sparse"))
		part := make([]byte, 9)
		if _, err := f.ReadAt(part, 64<<20); err != nil || string(part) != "some data" {
			t.Errorf("%s: the sparse file has %q, %v", name, part, err)
		}
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("%s: the sparse file takes %d bytes", name, st.Blocks*512)
		}
	}
}

func TestADevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	must(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 3<<20)
	must(t, err, f.Truncate(8<<20), f.Close())
	var buf bytes.Buffer
	head := aHead()
	head.Claim.Block = true
	_, err = Write(t.Context(), &buf, head, opened(t, path))
	must(t, err)
	for size, fits := range map[int64]bool{8 << 20: true, 16 << 20: true, 4 << 20: false} {
		to, err := os.Create(filepath.Join(t.TempDir(), "to"))
		must(t, err, to.Truncate(size))
		r, err := Open(bytes.NewReader(buf.Bytes()))
		must(t, err)
		_, err = r.Device(t.Context(), to, size)
		if fits != (err == nil) || !fits && !errdefs.IsResourceExhausted(err) {
			t.Errorf("into %d bytes: %v", size, err)
		}
		part := make([]byte, 13)
		if _, err := to.ReadAt(part, 3<<20); fits && (err != nil || string(part) != "in the middle") {
			t.Errorf("it has %q, %v", part, err)
		}
		must(t, to.Close())
	}
}

// TestManyHoles: of a file with very many parts fewer are told, and all that is in it is in these.
func TestManyHoles(t *testing.T) {
	const most, step = 16, 64 << 10
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	var at []int64
	for i := range int64(3 * most) {
		at = append(at, i*step+i*i*4096)
		_, err := f.WriteAt([]byte{1}, at[i])
		must(t, err)
	}
	size := at[len(at)-1] + step
	must(t, f.Truncate(size))
	all, err := segments(f, size, most)
	if must(t, err); len(all) >= most {
		t.Errorf("%d parts: %v", len(all), all)
	}
	for _, p := range at {
		if !slices.ContainsFunc(all, func(s segment) bool { return s.at <= p && p < s.at+s.length }) {
			t.Errorf("%d is in none of %v", p, all)
		}
	}
}

// entry is one of a hostile archive.
type entry struct {
	tar.Header
	data string
}

// made is an archive with entries between its documents.
func made(t testing.TB, end string, entries ...entry) []byte {
	t.Helper()
	head := aHead()
	head.Format, head.Version = format, version
	raw, err := json.Marshal(head)
	must(t, err)
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	if end == "" {
		end = fmt.Sprintf(`{"entries": %d}`, len(entries))
	}
	entries = append([]entry{{tar.Header{Name: headName, Typeflag: tar.TypeReg}, string(raw)}}, entries...)
	if end != "none" {
		entries = append(entries, entry{tar.Header{Name: endName, Typeflag: tar.TypeReg}, end})
	}
	for _, e := range entries {
		if e.Size == 0 {
			e.Size = int64(len(e.data))
		}
		must(t, tw.WriteHeader(&e.Header))
		if _, err := tw.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
		if tw.Flush() != nil {
			return buf.Bytes() // it says that it is longer
		}
	}
	must(t, tw.Close())
	return buf.Bytes()
}

func file(name, data string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, data}
}

// TestHostileArchives: nothing comes out of the directory, and what cannot be right is refused.
func TestHostileArchives(t *testing.T) {
	link := func(name, target string) entry {
		return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}}
	}
	hard := func(name, target string) entry {
		return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}}
	}
	invalid, exhausted := errdefs.IsInvalidArgument, errdefs.IsResourceExhausted
	for name, c := range map[string]struct {
		raw  []byte
		l    Limits
		is   func(error) bool // nil: it is read
		says string
	}{
		"up":                      {raw: made(t, "", file("data/../../outside", "x")), is: invalid},
		"absolute":                {raw: made(t, "", file("/etc/outside", "x")), is: invalid},
		"beside":                  {raw: made(t, "", file("data2/f", "x")), is: invalid},
		"through a link":          {raw: made(t, "", link("data/l", "/../../outside"), file("data/l/f", "x"))},
		"over a link":             {raw: made(t, "", link("data/l", "../outside"), file("data/l", "x"))},
		"a link from outside":     {raw: made(t, "", hard("data/l", "../outside/secret")), is: invalid},
		"a link through a link":   {raw: made(t, "", link("data/l", "../../outside"), hard("data/h", "data/l/secret")), is: invalid},
		"a disk":                  {raw: made(t, "", entry{Header: tar.Header{Name: "data/sda", Typeflag: tar.TypeBlock, Devmajor: 8}}), is: invalid, says: "device 8:0"},
		"a device":                {raw: made(t, "", entry{Header: tar.Header{Name: "data/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}}), is: invalid, says: "device 1:1"},
		"the root is a link":      {raw: made(t, "", link("data", "/etc")), is: invalid},
		"too much":                {raw: made(t, "", file("data/f", strings.Repeat("x", 100<<10))), l: Limits{Bytes: 64 << 10, Entries: 10}, is: exhausted},
		"too many":                {raw: made(t, "", file("data/a", ""), file("data/b", ""), file("data/c", "")), l: Limits{Bytes: 64 << 10, Entries: 2}, is: exhausted},
		"a size that lies":        {raw: made(t, "", entry{tar.Header{Name: "data/f", Typeflag: tar.TypeReg, Size: 1 << 62, Format: tar.FormatGNU}, "x"}), is: exhausted},
		"no end":                  {raw: made(t, "none", file("data/f", "x")), is: invalid, says: "cut short"},
		"an end that lies":        {raw: made(t, `{"entries": 7}`, file("data/f", "x")), is: invalid, says: "1 entries"},
		"an end that is none":     {raw: made(t, `[]`, file("data/f", "x")), is: invalid},
		"zeros cost nothing":      {raw: made(t, "", file("data/f", strings.Repeat("\x00", 1<<20))), l: Limits{Bytes: 64 << 10, Entries: 300}},
		"owners that are none":    {raw: made(t, "", entry{tar.Header{Name: "data/f", Typeflag: tar.TypeReg, Uid: 1<<32 - 1}, "x"}), is: invalid},
		"no head":                 {raw: made(t, "", file("data/f", "x"))[512:], is: invalid},
		"another tar":             {raw: plainTar(t), is: invalid, says: "monopod volume export"},
		"packed":                  {raw: []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), is: invalid, says: "gzip -d"},
		"nothing":                 {is: invalid},
		"no tar":                  {raw: bytes.Repeat([]byte("no tar "), 1000), is: invalid},
		"attributes of a machine": {raw: made(t, "", entry{tar.Header{Name: "data/f", Typeflag: tar.TypeReg, PAXRecords: map[string]string{xattrRecord + "trusted.x": "y"}}, "x"})},
	} {
		t.Run(name, func(t *testing.T) {
			if c.l.Bytes == 0 {
				c.l = limits
			}
			outer := t.TempDir()
			dir, outside := filepath.Join(outer, "to"), filepath.Join(outer, "outside")
			must(t, os.Mkdir(dir, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), []byte("untouched"), 0o600))
			r, err := Open(bytes.NewReader(c.raw))
			if err == nil {
				_, err = r.Tree(t.Context(), dir, c.l)
			}
			if (err == nil) != (c.is == nil) || err != nil && (!c.is(err) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("it ends with %v", err)
			}
			left, rerr := os.ReadDir(outer)
			inside, ierr := os.ReadDir(outside)
			secret, serr := os.ReadFile(filepath.Join(outside, "secret"))
			if must(t, rerr, ierr, serr); len(left) != 2 || len(inside) != 1 || string(secret) != "untouched" {
				t.Errorf("outside there is %v, %v, %q", left, inside, secret)
			}
		})
	}
}

func plainTar(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	must(t, tw.WriteHeader(&tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg}), tw.Close())
	return buf.Bytes()
}

// TestCutShort: wherever an archive ends too early, it is not taken for whole.
func TestCutShort(t *testing.T) {
	whole := made(t, "", file("data/a", strings.Repeat("a", 1000)), file("data/b", "b"))
	must(t, func() error { _, _, err := read(t, whole, limits); return err }())
	end := bytes.Index(whole, []byte(endName))
	for n := 0; n <= end+512; n += 256 {
		if _, _, err := read(t, whole[:n], limits); !errdefs.IsInvalidArgument(err) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// TestWhoStopsWriting: an error of the writer, or of the reader, ends it, and keeps its class.
func TestWhoStopsWriting(t *testing.T) {
	from := t.TempDir()
	must(t, os.WriteFile(filepath.Join(from, "f"), make([]byte, 1<<20), 0o600))
	full := errors.New("full")
	if _, err := Write(t.Context(), writerFunc(func([]byte) (int, error) { return 0, full }), aHead(), opened(t, from)); !errors.Is(err, full) {
		t.Errorf("a full disk: %v", err)
	}
	raw, _ := written(t, from)
	r, err := Open(io.MultiReader(bytes.NewReader(raw[:4096]), readerFunc(func([]byte) (int, error) { return 0, full })))
	if err == nil {
		_, err = r.Tree(t.Context(), t.TempDir(), limits)
	}
	if !errors.Is(err, full) || errdefs.IsInvalidArgument(err) {
		t.Errorf("a sender that fails: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzRead(f *testing.F) {
	f.Add(made(f, "", file("data/a", "a"), entry{Header: tar.Header{Name: "data/l", Typeflag: tar.TypeSymlink, Linkname: "/"}}))
	f.Add(made(f, "none"))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	begin, _, err := sparseEntry(&tar.Header{Name: "data/s", Typeflag: tar.TypeReg, Size: 1 << 20, Format: tar.FormatPAX}, []segment{{4096, 1}})
	must(f, err)
	f.Add(append(made(f, "none")[:1536:1536], begin...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		r, err := Open(bytes.NewReader(raw))
		if err != nil {
			return
		}
		_, _ = r.Tree(t.Context(), dir, Limits{Bytes: 1 << 16, Entries: 16})
	})
}
