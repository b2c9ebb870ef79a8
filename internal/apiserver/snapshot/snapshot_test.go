package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

// place is the directories of a server; short, because of the socket.
func place(t *testing.T) (data, run string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-snap-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, run = filepath.Join(dir, "data"), filepath.Join(dir, "run")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	return data, run
}

func serve(t *testing.T, data, run string) *etcd.Server {
	t.Helper()
	s, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(data, "etcd"), SocketDir: filepath.Join(run, "etcd"), Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// saved is a snapshot with /k = v and a key.
func saved(t *testing.T) string {
	t.Helper()
	data, run := place(t)
	s := serve(t, data, run)
	if _, err := s.Client().Put(t.Context(), "/k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(data, "pki", "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"pki/ca.key": "secret", "pki/keys/1.key": "other", "pki/.ca.key.tmp": "half"} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(data, "snapshot.tar")
	m, err := Save(t.Context(), SaveConfig{DataDir: data, RunDir: run, File: file, Node: "n", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != 3 || m.Revision < 2 || m.Node != "n" || m.Etcd == "" {
		t.Errorf("%+v", m)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	return file
}

// tree is all that is in a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			raw, err := os.ReadFile(path)
			all = append(all, fmt.Sprintf("%s %x", path, raw))
			return err
		}
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func TestRestore(t *testing.T) {
	file := saved(t)
	data, run := place(t)
	r, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: data})
	if err != nil || r.Aside != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, want := range map[string]string{"pki/ca.key": "secret", "pki/keys/1.key": "other"} {
		if raw, err := os.ReadFile(filepath.Join(data, name)); err != nil || string(raw) != want {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
	s := serve(t, data, run)
	got, err := s.Client().Get(t.Context(), "/k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" || got.Header.Revision < r.Manifest.Revision+1e9 {
		t.Errorf("%v, %v", got, err)
	}
	// Who runs is not overwritten, nor is what is there.
	before := tree(t, filepath.Join(data, "pki"))
	if _, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: data, Force: true}); err == nil || !strings.Contains(err.Error(), "used by another process") {
		t.Errorf("while a server runs: %v", err)
	}
	if _, err := s.Client().Put(t.Context(), "/k", "w"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: data}); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("on data: %v", err)
	}
	if after := tree(t, filepath.Join(data, "pki")); after != before {
		t.Error("something has changed")
	}
	if r, err = Restore(t.Context(), RestoreConfig{File: file, DataDir: data, Force: true}); err != nil || r.Aside == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if raw, err := os.ReadFile(filepath.Join(r.Aside, "pki", "ca.key")); err != nil || string(raw) != "secret" {
		t.Errorf("what was there: %q, %v", raw, err)
	}
	if got, err := serve(t, data, run).Client().Get(t.Context(), "/k"); err != nil || string(got.Kvs[0].Value) != "v" {
		t.Errorf("%v, %v", got, err)
	}
}

// rewrite changes the entries of a snapshot.
func rewrite(t *testing.T, file string, change func(h *tar.Header, content []byte) (*tar.Header, []byte)) []byte {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	r, w := tar.NewReader(in), tar.NewWriter(&out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h, content = change(h, content); h == nil {
			continue
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Of a file that is not what it should be nothing is used, and its error says what is wrong.
func TestBadSnapshots(t *testing.T) {
	file := saved(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) func(*tar.Header, []byte) (*tar.Header, []byte) {
		return func(h *tar.Header, content []byte) (*tar.Header, []byte) {
			if h.Name == "pki/ca.key" {
				h.Name = name
			}
			return h, content
		}
	}
	manifest := func(change func(*Manifest)) []byte {
		return rewrite(t, file, func(h *tar.Header, content []byte) (*tar.Header, []byte) {
			if h.Name == manifestName {
				var m Manifest
				if err := json.Unmarshal(content, &m); err != nil {
					t.Fatal(err)
				}
				change(&m)
				content, _ = json.Marshal(m)
			}
			return h, content
		})
	}
	huge := func(size int64) []byte {
		var out bytes.Buffer
		if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: databaseName, Size: size, Mode: 0o600, Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	flipped := bytes.Clone(whole)
	flipped[block+5000] ^= 1
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"empty":              {nil, "cut off, or no snapshot"},
		"no tar":             {bytes.Repeat([]byte("x"), 5000), "no snapshot of monopod"},
		"cut in the objects": {whole[:9000], "cut off in its entry"},
		"cut at the end":     {whole[:len(whole)-4096], "cut off"},
		"a bit of another":   {flipped, "not what its manifest says"},
		"no manifest": {rewrite(t, file, func(h *tar.Header, c []byte) (*tar.Header, []byte) {
			if h.Name == manifestName {
				return nil, nil
			}
			return h, c
		}), "no manifest"},
		"no objects": {manifestWithout(t, file), "has no etcd.db"},
		"parent":     {rewrite(t, file, named("pki/../../evil")), `"pki/../../evil" has no name`},
		"parents":    {rewrite(t, file, named("pki/../../../../evil")), "none that a snapshot has"},
		"absolute":   {rewrite(t, file, named("/etc/evil")), "none that a snapshot has"},
		"elsewhere":  {rewrite(t, file, named("state/agent.db")), "none that a snapshot has"},
		"twice":      {rewrite(t, file, named("pki/keys/1.key")), "one too many"},
		"link": {rewrite(t, file, func(h *tar.Header, c []byte) (*tar.Header, []byte) {
			if h.Name == "pki/ca.key" {
				h.Typeflag, h.Linkname, h.Size, c = tar.TypeSymlink, "/etc/shadow", 0, nil
			}
			return h, c
		}), "no plain file"},
		"huge":              {huge(1 << 40), "the most is"},
		"larger than disks": {huge(maxDatabase), ""}, // cut off, or no room
		"newer format":      {manifest(func(m *Manifest) { m.Format = 2 }), "use the version that made it"},
		"newer etcd":        {manifest(func(m *Manifest) { m.Etcd = "4.0.0" }), "use a newer monopod"},
		"one file less":     {manifest(func(m *Manifest) { m.Files = m.Files[:2] }), "not in its manifest"},
		"no database": {rewrite(t, file, asManifest(t, func(name string, c []byte) []byte {
			if name == databaseName {
				return bytes.Repeat([]byte("not a database. "), 1000)
			}
			return c
		})), "damaged"},
		"a damaged database": {rewrite(t, file, asManifest(t, func(name string, c []byte) []byte {
			if name == databaseName {
				for i := 3 * 4096; i < len(c)-4096; i++ {
					c[i] ^= 0x55
				}
			}
			return c
		})), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			data, _ := place(t)
			if err := os.MkdirAll(filepath.Join(data, "state"), 0o700); err != nil {
				t.Fatal(err)
			}
			bad := filepath.Join(filepath.Dir(data), "bad.tar")
			if err := os.WriteFile(bad, c.raw, 0o600); err != nil {
				t.Fatal(err)
			}
			before := tree(t, filepath.Dir(data))
			_, err := Restore(t.Context(), RestoreConfig{File: bad, DataDir: data})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bad) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			t.Log(err)
			if after := tree(t, filepath.Dir(data)); after != before {
				t.Errorf("something has changed:\n%s", after)
			}
		})
	}
}

// asManifest changes files, and the manifest with them.
func asManifest(t *testing.T, change func(name string, content []byte) []byte) func(*tar.Header, []byte) (*tar.Header, []byte) {
	var made []File
	return func(h *tar.Header, content []byte) (*tar.Header, []byte) {
		if h.Name != manifestName {
			content = change(h.Name, content)
			made = append(made, fileOf(h.Name, content))
			return h, content
		}
		var m Manifest
		if err := json.Unmarshal(content, &m); err != nil {
			t.Fatal(err)
		}
		m.Files = made
		content, _ = json.Marshal(m)
		return h, content
	}
}

func manifestWithout(t *testing.T, file string) []byte {
	t.Helper()
	inner := asManifest(t, func(_ string, c []byte) []byte { return c })
	return rewrite(t, file, func(h *tar.Header, c []byte) (*tar.Header, []byte) {
		if h.Name == databaseName {
			return nil, nil
		}
		return inner(h, c)
	})
}

// A restoration that ends at any moment leaves what was there before or what was restored; the next start sees to it.
func TestCutOff(t *testing.T) {
	file := saved(t)
	for step := range 8 {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			data, run := place(t)
			old := serve(t, data, run)
			if _, err := old.Client().Put(t.Context(), "/k", "old"); err != nil {
				t.Fatal(err)
			}
			old.Close()
			if err := os.MkdirAll(filepath.Join(data, "pki"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(data, "pki", "ca.key"), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			want := cutOff(t, file, data, step)
			if _, err := Finish(data); err != nil {
				t.Fatal(err)
			}
			if _, err := Finish(data); err != nil { // it may be repeated
				t.Fatal(err)
			}
			got, err := serve(t, data, run).Client().Get(t.Context(), "/k")
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
				t.Errorf("%v, %v; want %s", got, err, want)
			}
			wantKey := map[string]string{"old": "old", "v": "secret"}[want]
			if raw, err := os.ReadFile(filepath.Join(data, "pki", "ca.key")); err != nil || string(raw) != wantKey {
				t.Errorf("key %q, %v; want %s", raw, err, wantKey)
			}
			if left, _ := filepath.Glob(filepath.Join(data, "restore-*")); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// cutOff does as much of a restoration as the step says, and returns what must be there afterwards.
func cutOff(t *testing.T, file, data string, step int) (want string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := RestoreConfig{File: file, DataDir: data, Force: true}
	made := filepath.Join(data, newPrefix+"1")
	must(os.Mkdir(made, 0o700))
	if step == 0 {
		return "old"
	}
	_, err := unpack(t.Context(), cfg, made)
	must(err)
	if step == 1 {
		return "old"
	}
	must(build(cfg, made))
	if step == 2 {
		return "old"
	}
	ready := filepath.Join(data, readyName)
	must(os.Rename(made, ready))
	if step == 3 {
		return "v"
	}
	old := filepath.Join(ready, oldName)
	must(os.Mkdir(old, 0o700))
	moves := [][2]string{
		{filepath.Join(data, "etcd"), filepath.Join(old, "etcd")}, {filepath.Join(ready, "etcd"), filepath.Join(data, "etcd")},
		{filepath.Join(data, "pki"), filepath.Join(old, "pki")}, {filepath.Join(ready, "pki"), filepath.Join(data, "pki")},
	}
	for _, m := range moves[:step-3] {
		must(os.Rename(m[0], m[1]))
	}
	return "v"
}

func TestSaveFails(t *testing.T) {
	data, run := place(t)
	if _, err := Save(t.Context(), SaveConfig{DataDir: data, RunDir: run, File: filepath.Join(data, "s.tar")}); err == nil || !strings.Contains(err.Error(), "no API server runs") {
		t.Errorf("without a server: %v", err)
	}
	serve(t, data, run)
	if _, err := Save(t.Context(), SaveConfig{DataDir: data, RunDir: run, File: filepath.Join(data, "s.tar")}); err == nil || !strings.Contains(err.Error(), "keys and certificates") {
		t.Errorf("without keys: %v", err)
	}
	if err := os.Mkdir(filepath.Join(data, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), SaveConfig{DataDir: data, RunDir: run, File: data}); err == nil || !strings.Contains(err.Error(), "no plain file") {
		t.Errorf("to a folder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Save(ctx, SaveConfig{DataDir: data, RunDir: run, File: filepath.Join(data, "s.tar"), Progress: func(string, int64, int64) { cancel() }})
	cancel()
	left, _ := filepath.Glob(filepath.Join(data, "*s.tar*"))
	if hidden, _ := filepath.Glob(filepath.Join(data, ".s.tar*")); err != nil && len(left)+len(hidden) > 0 {
		t.Errorf("%v: %v %v are left", err, left, hidden)
	}
}
