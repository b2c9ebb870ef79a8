package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/registry"
)

// The corpus of hostile images. Each case is an image that is made here, byte for byte, and that is brought in twice: pulled from a
// registry, and loaded from an archive. It is refused, with an error of the right class that says what is wrong, or unpacked to exactly
// the tree that is expected; and whichever it is, nothing outside of the layer changes, and the store is whole.

// rawImage is an image of parts that need not fit together.
type rawImage struct {
	layers    []rawLayer
	config    []byte // nil: one that fits the layers
	manifest  []byte // nil: one that fits
	mediaType string // of the manifest; "": OCI's
	blobs     [][]byte
	documents []document // further manifests and indexes
}

type document struct {
	mediaType string
	raw       []byte
}

type rawLayer struct {
	plain []byte // what the configuration says the layer unpacks to
	blob  []byte // nil: plain
	desc  *ocispec.Descriptor
}

func blobOf(raw []byte) member {
	return member{name: "blobs/sha256/" + digest.FromBytes(raw).Encoded(), data: raw}
}

func descOf(mediaType string, raw []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// build completes the image.
func (img *rawImage) build(t testing.TB) {
	t.Helper()
	cfg := ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range img.layers {
		if l.blob == nil {
			l.blob = l.plain
		}
		desc := descOf(ocispec.MediaTypeImageLayer, l.blob)
		if l.desc != nil {
			desc = *l.desc
		}
		img.blobs = append(img.blobs, l.blob)
		m.Layers = append(m.Layers, desc)
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.FromBytes(l.plain))
	}
	if img.config == nil {
		img.config = mustJSON(t, cfg)
	}
	img.blobs = append(img.blobs, img.config)
	m.Config = descOf(ocispec.MediaTypeImageConfig, img.config)
	if img.manifest == nil {
		img.manifest = mustJSON(t, m)
	}
	if img.mediaType == "" {
		img.mediaType = ocispec.MediaTypeImageManifest
	}
}

const hostileName = "hostile:1"

// archive puts the image into an OCI layout.
func (img *rawImage) archive(t testing.TB) []byte {
	t.Helper()
	t2, ok := t.(*testing.T)
	if !ok {
		t.Fatal("only for tests")
	}
	desc := descOf(img.mediaType, img.manifest)
	desc.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/" + hostileName}
	index := mustJSON(t, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{desc}})
	members := []member{layoutFile, {name: "index.json", data: index}, blobOf(img.manifest)}
	for _, b := range img.blobs {
		members = append(members, blobOf(b))
	}
	for _, d := range img.documents {
		members = append(members, blobOf(d.raw))
	}
	return archiveOf(t2, members...)
}

// field is a store with something beside it that must stay as it is.
type field struct {
	*fixture
	registry *registry.Registry // nil: images are loaded
	outside  string             // a folder beside the store
	before   []string
}

// newField makes a store that pulls, or one that loads.
func newField(t *testing.T, pulls bool) *field {
	t.Helper()
	f := &field{fixture: open(t)}
	if pulls {
		f.registry = registry.New(t)
	}
	f.outside = filepath.Join(filepath.Dir(f.cfg.Root), "outside")
	for name, data := range map[string]string{"secret": "untouched", "dir/file": "as it was"} {
		path := filepath.Join(f.outside, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.before = f.around()
	return f
}

// around describes what layers must not touch: what is beside the store, the store's own folders, and what
// they name of this machine.
func (f *field) around() (out []string) {
	f.t.Helper()
	note := func(path string) {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if errors.Is(err, unix.ENOENT) { // this machine has none; nor may a layer make one
			out = append(out, path+": not there")
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		size, err := unix.Llistxattr(path, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s: inode %d, mode %o, %d:%d, %d links, %d bytes, %v %v, %d bytes of attributes",
			path, st.Ino, st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim, st.Ctim, size))
	}
	err := filepath.WalkDir(f.outside, func(p string, _ fs.DirEntry, err error) error {
		note(p)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range []string{"/etc/passwd", "/etc/shadow", "/bin/sh", f.cfg.Root} {
		note(p)
	}
	// What the layers would make on this machine, by name: others of it may make what they like there meanwhile.
	for _, p := range []string{"/etc/x", "/etc/.wh.passwd", "/a", "/b", "/d", "/f", "/h", "/l", "/p", "/t", "/x", "/secret", "/way", "/data"} {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			note(p)
		}
	}
	for _, p := range []string{"/", "/etc"} {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			f.t.Fatal(err)
		}
		size, err := unix.Listxattr(p, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s: inode %d, mode %o, %d:%d, %d bytes of attributes", p, st.Ino, st.Mode, st.Uid, st.Gid, size))
	}
	for _, dir := range []string{filepath.Dir(f.cfg.Root), f.cfg.Root} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// check sees that the store is whole and everything else as it was. Nothing of a failed image may be left half made.
func (f *field) check(t *testing.T) {
	t.Helper()
	if now := f.around(); !slices.Equal(now, f.before) {
		for _, l := range now {
			if !slices.Contains(f.before, l) {
				t.Errorf("outside of the layer there is now %s", l)
			}
		}
		for _, l := range f.before {
			if !slices.Contains(now, l) {
				t.Errorf("outside of the layer there was %s", l)
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := halfMade(t, f.cfg.Root)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) { // the collection in the background removes them
			t.Errorf("half made: %v", left)
			break
		}
	}
	// Devices and set-user-ID programs of an image are out of reach for users of the machine.
	if info, err := os.Stat(filepath.Join(f.cfg.Root, "overlay")); err != nil || info.Mode()&0o007 != 0 {
		t.Errorf("everybody may enter the layers: %v, %v", info.Mode(), err)
	}
	list, err := f.List(f.ctx)
	if err != nil || len(list) != 0 {
		t.Errorf("the store has %v, %v", list, err)
	}
}

// bring brings an image in: its id, or why not.
func (f *field) bring(t *testing.T, img *rawImage) (ids.ImageID, error) {
	t.Helper()
	img.build(t)
	if f.registry != nil {
		for _, b := range img.blobs {
			f.registry.SetBlob(digest.FromBytes(b), b)
		}
		for _, d := range img.documents {
			f.registry.SetManifest("hostile", "other", d.mediaType, d.raw)
		}
		f.registry.SetManifest("hostile", "1", img.mediaType, img.manifest)
		got, err := f.Pull(f.ctx, image.PullRequest{Ref: f.registry.Addr + "/" + hostileName})
		return got.ID, err
	}
	got, err := f.Load(f.ctx, image.LoadRequest{Archive: bytes.NewReader(img.archive(t))})
	if len(got) == 1 {
		return got[0].ID, err
	}
	return "", err
}

func (f *field) remove(t *testing.T, id ids.ImageID) {
	t.Helper()
	if id != "" {
		f.saveAgain(t, id)
		if err := f.Remove(f.ctx, string(id)); err != nil {
			t.Error(err)
		}
	}
	f.check(t)
}

// saveAgain sees that what was unpacked can be written again, or that the error says why it cannot.
func (f *field) saveAgain(t *testing.T, id ids.ImageID) {
	t.Helper()
	var out bytes.Buffer
	err := f.Save(f.ctx, []string{string(id)}, &out)
	if errdefs.IsFailedPrecondition(err) || errdefs.IsDataLoss(err) {
		t.Logf("it cannot be saved: %v", err)
		return
	}
	if err != nil {
		t.Errorf("saving it again: %v", err)
		return
	}
	loaded, err := f.Load(f.ctx, image.LoadRequest{Archive: &out})
	if err != nil || len(loaded) != 1 || loaded[0].ID != id {
		t.Errorf("what was saved is loaded as %v, %v", loaded, err)
	}
}

// treeOf lists what is in the layer that was unpacked last, one line for each file:
//
//	file=content  dir/  link->target  fifo|  whiteout!  device(c 1,3)  (hard links: file=content <2>)
//
// and behind it, where they are not root's with 0644 (0755 for directories and links), mode and owner, and attributes.
func (f *field) treeOf(t *testing.T, id ids.ImageID) []string {
	t.Helper()
	dirs, err := f.Layers(f.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	err = filepath.WalkDir(dirs[0], func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dirs[0], p)
		if err != nil {
			return err
		}
		line := describe(t, p, rel)
		if line != "./" {
			out = append(out, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func describe(t *testing.T, path, rel string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	if len(rel) > 60 {
		rel = fmt.Sprintf("%.10s(%d)", rel, len(rel))
	}
	line, usual := rel, uint32(0o644)
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		line, usual = rel+"/", 0o755
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		line, usual = rel+"->"+target, 0o777
	case unix.S_IFIFO:
		line = rel + "|"
	case unix.S_IFCHR:
		if line = fmt.Sprintf("%s(c %d,%d)", rel, major, minor); st.Rdev == 0 {
			line, usual = rel+"!", 0
		}
	case unix.S_IFBLK:
		line = fmt.Sprintf("%s(b %d,%d)", rel, major, minor)
	case unix.S_IFREG:
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if line = rel + "=" + string(raw); len(raw) > 40 {
			line = fmt.Sprintf("%s=(%d)", rel, len(raw))
		}
		if st.Nlink > 1 {
			line += fmt.Sprintf(" <%d>", st.Nlink)
		}
	}
	if mode := st.Mode &^ unix.S_IFMT; mode != usual {
		line += fmt.Sprintf(" %04o", mode)
	}
	if st.Uid != 0 || st.Gid != 0 {
		line += fmt.Sprintf(" %d:%d", st.Uid, st.Gid)
	}
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00")
	slices.Sort(all)
	for _, key := range all {
		if key == "" || key == "security.selinux" { // which the machine's own policy may give
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, key, value)
		if err != nil {
			t.Fatal(err)
		}
		if n > 20 {
			line += fmt.Sprintf(" {%.30s: %d bytes}", key, n)
		} else {
			line += fmt.Sprintf(" {%s=%q}", key, value[:n])
		}
	}
	return line
}

func gzipOf(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(plain) // into memory
	w.Close()      // as above
	return out.Bytes()
}

func zstdOf(t testing.TB, plain []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(plain, nil)
}

// ent is an entry of a layer's tar. What archive/tar would not write is written as it is given.
type ent struct {
	name, link string
	kind       byte // 0: a regular file
	data       string
	mode       int64
	uid, gid   int
	major      int64
	minor      int64
	xattrs     map[string]string
	pax        map[string]string // as they are, in a header of their own
	longName   string            // in a GNU header of its own
	// change makes something else of the header's block; the checksum is made anew after it.
	change func(block []byte)
}

// rawTar writes entries in the simplest format, by hand, so that they can lie.
func rawTar(entries ...ent) []byte {
	out := entriesOf(entries...)
	return append(out, make([]byte, 1024)...)
}

func entriesOf(entries ...ent) []byte {
	var out []byte
	for _, e := range entries {
		records := ""
		for _, m := range []map[string]string{e.pax} {
			for k, v := range m {
				records += paxRecord(k, v)
			}
		}
		for k, v := range e.xattrs {
			records += paxRecord("SCHILY.xattr."+k, v)
		}
		if len(e.name) > 100 {
			records += paxRecord("path", e.name)
		}
		if len(e.link) > 100 {
			records += paxRecord("linkpath", e.link)
		}
		if records != "" {
			out = append(out, block(ent{name: "PaxHeader", kind: tar.TypeXHeader, data: records})...)
		}
		if e.longName != "" {
			out = append(out, block(ent{name: "././@LongLink", kind: tar.TypeGNULongName, data: e.longName})...)
		}
		out = append(out, block(e)...)
	}
	return out
}

func paxRecord(k, v string) string {
	n := len(k) + len(v) + 3
	n += len(fmt.Sprint(n))
	if len(fmt.Sprint(n)) != len(fmt.Sprint(n-1)) && len(fmt.Sprintf("%d %s=%s\n", n, k, v)) != n {
		n++
	}
	for len(fmt.Sprintf("%d %s=%s\n", n, k, v)) != n {
		n = len(fmt.Sprintf("%d %s=%s\n", n, k, v))
	}
	return fmt.Sprintf("%d %s=%s\n", n, k, v)
}

// block writes a header and its payload.
func block(e ent) []byte {
	b := make([]byte, 512)
	octal := func(at, n int, v int64) { copy(b[at:at+n], fmt.Sprintf("%0*o\x00", n-1, v)) }
	copy(b[:100], e.name)
	if e.mode == 0 {
		e.mode = 0o644
		if e.kind == tar.TypeDir {
			e.mode = 0o755
		}
	}
	octal(100, 8, e.mode)
	octal(108, 8, int64(e.uid))
	octal(116, 8, int64(e.gid))
	octal(124, 12, int64(len(e.data)))
	octal(136, 12, 1_000_000_000)
	if b[156] = e.kind; e.kind == 0 {
		b[156] = tar.TypeReg
	}
	copy(b[157:257], e.link)
	copy(b[257:], "ustar\x0000")
	octal(329, 8, e.major)
	octal(337, 8, e.minor)
	if e.change != nil {
		e.change(b)
	}
	sum(b)
	b = append(b, e.data...)
	return append(b, make([]byte, (512-len(e.data)%512)%512)...)
}

// sum gives a header's block its checksum.
func sum(b []byte) {
	copy(b[148:156], "        ")
	n := 0
	for _, c := range b[:512] {
		n += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", n))
}

// expectation is what becomes of an image.
type expectation struct {
	// says is what an error must say; none: the image is unpacked. It is of class InvalidArgument, or class.
	says  []string
	class func(error) bool
	// tree is what the uppermost layer has then.
	tree []string
}

func (f *field) expect(t *testing.T, img *rawImage, want expectation) {
	t.Helper()
	id, err := f.bring(t, img)
	defer f.remove(t, id)
	switch {
	case want.says != nil:
		if want.class == nil {
			want.class = errdefs.IsInvalidArgument
		}
		mustFail(t, err, want.class, want.says...)
		if len(err.Error()) > 4<<10 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	case err != nil:
		t.Error(err)
	default:
		if got := f.treeOf(t, id); want.tree != nil && !slices.Equal(got, want.tree) {
			t.Errorf("the layer has\n%s\nit should have\n%s", strings.Join(got, "\n"), strings.Join(want.tree, "\n"))
		}
	}
}

// hostileCase is one of the corpus.
type hostileCase struct {
	name string
	img  rawImage
	want expectation
}

// both runs cases through both ways in.
func both(t *testing.T, cases func(f *field) []hostileCase) {
	for way, pulls := range map[string]bool{"pull": true, "load": false} {
		t.Run(way, func(t *testing.T) {
			f := newField(t, pulls)
			for _, c := range cases(f) {
				t.Run(c.name, func(t *testing.T) { f.expect(t, &c.img, c.want) })
			}
			f.mustBeEmpty()
		})
	}
}

func refused(says ...string) expectation { return expectation{says: says} }
func tree(lines ...string) expectation {
	return expectation{tree: append([]string{}, lines...)}
}
