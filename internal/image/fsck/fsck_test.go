package fsck_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"

	findings "monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/image/store"
)

// fixture is a store with two images that share their lowest layer; "held" is pinned by the container c1.
type fixture struct {
	t          *testing.T
	root       string
	a, b       store.Image
	layersOfA  []string // topmost first
	manifestOf map[string]string
}

func built(t *testing.T, name, text string) *ociarchive.Built {
	t.Helper()
	b, err := ociarchive.Build(ociarchive.Image{Name: name, Config: ocispec.ImageConfig{Cmd: []string{"/x"}}, Layers: []ociarchive.Layer{
		{{Path: "etc/shared", Data: []byte("shared")}, {Path: "etc/other", Data: []byte("other")}},
		{{Path: "etc/own", Data: []byte(text)}, {Path: "dir", Dir: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *fixture) open() *image.Store {
	s.t.Helper()
	st, err := image.Open(s.t.Context(), image.Config{Root: s.root})
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// fill loads both images, again after a repair.
func (s *fixture) fill(st *image.Store) {
	s.t.Helper()
	for _, text := range []string{"a", "b"} {
		b := built(s.t, "localhost/"+text+":v1", text)
		s.manifestOf[text] = b.Manifest.Digest.Encoded()
		var archive bytes.Buffer
		if err := ociarchive.Write(&archive, b); err != nil {
			s.t.Fatal(err)
		}
		if _, err := st.Load(s.t.Context(), image.LoadRequest{Archive: &archive}); err != nil {
			s.t.Fatal(err)
		}
	}
	var err error
	if s.a, err = st.Get(s.t.Context(), "localhost/a:v1"); err == nil {
		s.b, err = st.Get(s.t.Context(), "localhost/b:v1")
	}
	if err == nil {
		s.layersOfA, err = st.Layers(s.t.Context(), s.a.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func newStore(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{t: t, root: filepath.Join(t.TempDir(), "images"), manifestOf: map[string]string{}}
	st := s.open()
	s.fill(st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *fixture) check(deep bool) *fsck.Result {
	s.t.Helper()
	before := fingerprint(s.t, s.root)
	r, err := fsck.Check(s.t.Context(), fsck.Options{Root: s.root, Deep: deep})
	if err != nil {
		s.t.Fatal(err)
	}
	if after := fingerprint(s.t, s.root); after != before {
		s.t.Error("the check has changed something")
	}
	return r
}

// fingerprint is of all names, sizes, times and contents.
func fingerprint(t *testing.T, root string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(raw)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (s *fixture) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *fixture) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

func (s *fixture) blob(hex string) string { return s.path("content", "blobs", "sha256", hex) }

// change edits the metadata as no store would.
func (s *fixture) change(file string, f func(*bolt.Tx) error) {
	s.t.Helper()
	db, err := bolt.Open(s.path(file), 0o600, nil)
	s.must(err)
	s.must(db.Update(f))
	s.must(db.Close())
}

func in(tx *bolt.Tx, names ...string) *bolt.Bucket {
	b := tx.Bucket([]byte("v1"))
	for _, n := range names {
		b = b.Bucket([]byte(n))
	}
	return b
}

func TestWholeStore(t *testing.T) {
	s := newStore(t)
	for _, deep := range []bool{false, true} {
		r := s.check(deep)
		if len(r.Findings) != 0 || r.Images != 2 || r.Layers != 3 || !r.Known {
			t.Errorf("deep %v: %+v", deep, r)
		}
	}
	none, err := fsck.Check(t.Context(), fsck.Options{Root: s.path("none")})
	if err != nil || len(none.Findings) != 0 {
		t.Errorf("no store: %+v, %v", none, err)
	}
}

func TestStoreInUse(t *testing.T) {
	s := newStore(t)
	st := s.open()
	_, err := fsck.Check(t.Context(), fsck.Options{Root: s.root})
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a store that is open: %v", err)
	}
	s.must(st.Close())
}

// Each case damages a whole store. What is found is said as "severity kind: words"; a repair leaves nothing of it, and
// loading the images again succeeds.
func TestDamage(t *testing.T) {
	old := time.Now().Add(-2 * time.Hour)
	for name, c := range map[string]struct {
		deep   bool
		damage func(s *fixture)
		finds  []string
		stays  []string // after the repair
	}{
		"manifest missing": {damage: func(s *fixture) { s.must(os.Remove(s.blob(s.manifestOf["a"]))) },
			finds: []string{"damaged blob: it has no file", "damaged image: its manifest"}},
		"configuration changed": {damage: func(s *fixture) {
			path := s.blob(strings.TrimPrefix(string(s.a.ID), "sha256:"))
			raw, err := os.ReadFile(path)
			s.must(err)
			s.must(os.Chmod(path, 0o600))
			s.must(os.WriteFile(path, bytes.ToUpper(raw), 0o600))
		}, finds: []string{"damaged blob: its content has the digest", "damaged image: its configuration"}},
		"manifest cut": {damage: func(s *fixture) { s.must(os.Truncate(s.blob(s.manifestOf["b"]), 10)) },
			finds: []string{"damaged blob", "damaged image: its manifest"}},
		"layer directory missing": {damage: func(s *fixture) { s.must(os.RemoveAll(filepath.Dir(s.layersOfA[0]))) },
			finds: []string{"damaged image: its layer 2", "damaged layer: its directory"}},
		"shared layer missing": {damage: func(s *fixture) { s.must(os.RemoveAll(s.layersOfA[1])) },
			finds: []string{"damaged image: its layer 1", "damaged layer: its directory", "damaged layer: the layer below it"}},
		"layer held by a container": {damage: func(s *fixture) {
			st := s.open()
			s.must(st.Pin(s.t.Context(), s.a.ID, "c1"))
			s.must(st.Close())
			s.must(os.RemoveAll(s.layersOfA[0]))
		}, finds: []string{"damaged image: its layer 2", "damaged layer: its directory", "damaged pin: the image"}, stays: []string{"damaged layer", "damaged pin"}},
		"file changed": {deep: true, damage: func(s *fixture) {
			s.must(os.WriteFile(filepath.Join(s.layersOfA[0], "etc/own"), []byte("X"), 0o600))
		}, finds: []string{"damaged image: its layer 2", "damaged layer: the tar came out with"}},
		"file added": {deep: true, damage: func(s *fixture) {
			s.must(os.WriteFile(filepath.Join(s.layersOfA[0], "more"), nil, 0o600))
		}, finds: []string{"damaged image", "damaged layer: it has 5 files and directories, when it was unpacked it had 4"}},
		"directory removed": {deep: true, damage: func(s *fixture) { s.must(os.Remove(filepath.Join(s.layersOfA[0], "dir"))) },
			finds: []string{"damaged image", "damaged layer: it has 3 files and directories"}},
		"recipe cut": {damage: func(s *fixture) { s.must(os.Truncate(filepath.Join(filepath.Dir(s.layersOfA[0]), "recipe"), 40)) },
			finds: []string{"damaged recipe"}},
		"recipe of another layer": {damage: func(s *fixture) {
			raw, err := os.ReadFile(filepath.Join(filepath.Dir(s.layersOfA[1]), "recipe"))
			s.must(err)
			s.must(os.WriteFile(filepath.Join(filepath.Dir(s.layersOfA[0]), "recipe"), raw, 0o600))
		}, finds: []string{"damaged recipe: it is of the layer"}},
		"snapshot unknown to the snapshotter": {damage: func(s *fixture) {
			s.change("overlay/metadata.db", func(tx *bolt.Tx) error {
				b := in(tx, "snapshots")
				var key []byte
				_ = b.ForEachBucket(func(k []byte) error {
					if strings.HasSuffix(string(k), s.a.ChainID) {
						key = bytes.Clone(k)
					}
					return nil
				})
				return b.DeleteBucket(key)
			})
		}, finds: []string{"damaged image", "damaged layer: the snapshotter does not know it", "leftover directory: no layer has it"}},
		"a label lost": {damage: func(s *fixture) {
			s.change("metadata.db", func(tx *bolt.Tx) error {
				return in(tx, "monopod", "content", "blob", string(s.a.ID), "labels").Delete([]byte(store.LayersLabel))
			})
		}, finds: []string{"damaged image: nothing holds its layer", "leftover layer: no image"}},
		"strange leases": {damage: func(s *fixture) {
			s.change("metadata.db", func(tx *bolt.Tx) error {
				b, err := in(tx, "monopod").CreateBucketIfNotExists([]byte("leases"))
				if err != nil {
					return err
				}
				for _, id := range []string{"who", "transfer/x"} {
					l, err := b.CreateBucketIfNotExists([]byte(id))
					if err != nil {
						return err
					}
					at, err := old.MarshalBinary()
					if err != nil {
						return err
					}
					if err := l.Put([]byte("createdat"), at); err != nil {
						return err
					}
					if id == "who" {
						continue
					}
					labels, err := l.CreateBucket([]byte("labels"))
					if err != nil {
						return err
					}
					if err := labels.Put([]byte("monopod.dev/transfer"), []byte("some/image:v1")); err != nil {
						return err
					}
				}
				return nil
			})
		}, finds: []string{"leftover lease: nothing is known of its owner", "leftover lease: the transfer of some/image:v1"}},
		"leftover files": {damage: func(s *fixture) {
			boot, err := proc.BootID()
			s.must(err)
			for path, age := range map[string]time.Time{
				"content/blobs/sha256/" + strings.Repeat("1", 64): old, "content/blobs/sha256/strange": old, "content/ingest/abc/data": old, "downloads/" + boot + "/sha256-old": old,
				"downloads/" + boot + "/sha256-new": time.Now(), "downloads/otherboot/sha256-x": time.Now(), "overlay/snapshots/77/fs/file": old, "overlay/snapshots/new-12/fs/file": old,
			} {
				s.must(os.MkdirAll(filepath.Dir(s.path(path)), 0o700))
				s.must(os.WriteFile(s.path(path), []byte("left"), 0o600))
				s.must(os.Chtimes(s.path(path), age, age))
			}
		}, finds: []string{"leftover blob: the metadata does not know this file", "leftover directory: no layer has it", "leftover directory: nothing of the store",
			"leftover download: no pull has gone on with it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			c.damage(s)
			r := s.check(c.deep)
			expect(t, r, c.finds)
			s.must(fsck.Repair(t.Context(), fsck.Options{Root: s.root}, r.Findings))
			r = s.check(true)
			expect(t, r, c.stays)
			if len(c.stays) > 0 {
				return
			}
			st := s.open()
			s.fill(st)
			s.must(st.Close())
			if r := s.check(true); len(r.Findings) != 0 {
				t.Errorf("after loading again: %+v", r.Findings)
			}
		})
	}
}

// expect compares findings with the begins of what they should say, each of which is at least one.
func expect(t *testing.T, r *fsck.Result, want []string) {
	t.Helper()
	met := map[string]bool{}
	for _, f := range r.Findings {
		said := fmt.Sprintf("%s %s: %s", f.Severity, f.Kind, f.Problem)
		t.Logf("%s %s; %s", f.Object, said, f.Repair)
		known := false
		for _, w := range want {
			if strings.HasPrefix(said, w) {
				met[w], known = true, true
			}
		}
		if !known {
			t.Errorf("also found: %s: %s", f.Object, said)
		}
	}
	for _, w := range want {
		if !met[w] {
			t.Errorf("not found: %s", w)
		}
	}
}

func TestDamagedDatabase(t *testing.T) {
	for name, damage := range map[string]func(s *fixture, path string){
		"cut": func(s *fixture, path string) {
			info, err := os.Stat(path)
			s.must(err)
			s.must(os.Truncate(path, info.Size()/2))
		},
		"no database": func(s *fixture, path string) { s.must(os.WriteFile(path, []byte(strings.Repeat("x", 1<<16)), 0o600)) },
		"pages overwritten": func(s *fixture, path string) {
			raw, err := os.ReadFile(path)
			s.must(err)
			for i := 2 * os.Getpagesize(); i < len(raw); i++ {
				raw[i] ^= 0xa5
			}
			s.must(os.WriteFile(path, raw, 0o600))
		},
	} {
		for _, file := range []string{"metadata.db", "overlay/metadata.db"} {
			t.Run(name+" "+filepath.Dir(file), func(t *testing.T) {
				s := newStore(t)
				damage(s, s.path(file))
				r := s.check(true)
				if len(r.Findings) != 1 || r.Known {
					t.Fatalf("%+v", r)
				}
				expect(t, r, []string{"damaged database: " + s.path(file)})
				if r.Findings[0].Repairable {
					t.Error("it says that it can be repaired")
				}
			})
		}
	}
}

// A bit that flips anywhere in a database is found, or harms nothing; it never ends the check, nor keeps it for ever.
func TestFlippedBits(t *testing.T) {
	s := newStore(t)
	for _, file := range []string{"metadata.db", "overlay/metadata.db"} {
		whole, err := os.ReadFile(s.path(file))
		s.must(err)
		path := filepath.Join(t.TempDir(), "flipped.db")
		found := 0
		for i := 0; i < len(whole); i += 97 {
			raw := bytes.Clone(whole)
			raw[i] ^= 1 << (i % 8)
			s.must(os.WriteFile(path, raw, 0o600))
			err := findings.ViewDatabase(path, func(tx *bolt.Tx) error {
				return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return b.ForEach(func(_, _ []byte) error { return nil }) })
			})
			if errdefs.IsDataLoss(err) {
				found++
			} else if err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if found == 0 {
			t.Error("nothing was found")
		}
		t.Logf("%s: found %d of %d", file, found, len(whole)/97)
	}
}
