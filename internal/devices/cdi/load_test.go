package cdi

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/inventory"
)

// write makes a file with its folders.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// spec is a valid spec whose devices differ by an environment variable.
func spec(kind string, names ...string) string {
	var devices []string
	for _, n := range names {
		devices = append(devices, fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["NAME=%s"]}}`, n, n))
	}
	return fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(devices, ", "))
}

func names(devices []inventory.Device) []string {
	var ns []string
	for _, d := range devices {
		ns = append(ns, inventory.CDIName(d.Resource, d.Name))
	}
	return ns
}

func TestLoad(t *testing.T) {
	const node = `"containerEdits": {"deviceNodes": [{"path": "/dev/%s"}]}`
	twoNames := `{"cdiVersion": "0.5.0", "kind": "v.com/gpu", "devices": [
		{"name": "0", ` + fmt.Sprintf(node, "gpu0") + `}, {"name": "GPU-77", ` + fmt.Sprintf(node, "gpu0") + `},
		{"name": "1", ` + fmt.Sprintf(node, "gpu1") + `}, {"name": "all", ` + fmt.Sprintf(node, "gpu0") + `}]}`
	for _, tc := range []struct {
		name     string
		files    map[string]string // "a/" is the first folder, "b/" the second
		units    []string
		missing  []string // resources that are there without a device
		problems []string // each is "paths: part of the message"
	}{
		{name: "nothing"},
		{name: "json and yaml, in natural order", files: map[string]string{
			"a/x.json": spec("v.com/w", "w10", "w9"), "a/y.yaml": "cdiVersion: 0.3.0\nkind: u.org/z\ndevices:\n- name: z\n  containerEdits:\n    env: [A=b]\n"},
			units: []string{"u.org/z=z", "v.com/w=w9", "v.com/w=w10"}},
		{name: "other files and sub-folders are not specs", files: map[string]string{"a/x.txt": "?", "a/.json.swp": "?", "a/d.json/x.json": spec("v.com/w", "w")}},
		{name: "a bad file spoils nothing else", files: map[string]string{"a/bad.json": "{", "a/x.json": spec("v.com/w", "w0")},
			units: []string{"v.com/w=w0"}, problems: []string{"a/bad.json: failed to parse"}},
		{name: "an empty file", files: map[string]string{"a/x.yaml": ""}, problems: []string{"a/x.yaml: "}},
		{name: "an unknown field", files: map[string]string{"a/x.json": `{"cdiVersion": "0.6.0", "kind": "v.com/w", "colour": 1}`},
			problems: []string{"a/x.json: "}},
		{name: "an unknown version", files: map[string]string{"a/x.json": strings.Replace(spec("v.com/w", "w"), "0.6.0", "7.0.0", 1)},
			problems: []string{`a/x.json: invalid CDI Spec: invalid version "7.0.0"`}},
		{name: "a field newer than the version", files: map[string]string{"a/x.json": strings.Replace(spec("v.com/w", "0"), "0.6.0", "0.3.0", 1)},
			problems: []string{"a/x.json: invalid CDI Spec: the spec version must be at least v0.5.0"}},
		{name: "a null in a list", files: map[string]string{"a/x.json": `{"cdiVersion": "0.5.0", "kind": "v.com/w", "devices": [{"name": "w", "containerEdits": {"deviceNodes": [null]}}]}`},
			problems: []string{"a/x.json: invalid CDI Spec: device \"w\": deviceNodes[0] is empty (null)"}},
		{name: "no devices", files: map[string]string{"a/x.json": spec("v.com/w")}, problems: []string{"a/x.json: invalid CDI Spec: invalid spec, no devices"}},
		{name: "a kind that is no resource", files: map[string]string{"a/x.json": spec("Vx.com/w", "w"), "a/y.json": spec("k.kubernetes.io/w", "w")},
			problems: []string{`a/x.json: kind "Vx.com/w" is valid for CDI`, "a/y.json: "}},
		{name: "one kind in several files", files: map[string]string{"a/x.json": spec("v.com/w", "w0"), "a/y.json": spec("v.com/w", "w1"), "b/x.json": spec("v.com/w", "w2")},
			units: []string{"v.com/w=w0", "v.com/w=w1", "v.com/w=w2"}},
		{name: "the later folder wins", files: map[string]string{"a/x.json": spec("v.com/w", "w0"), "b/x.json": spec("v.com/w", "w0")},
			units: []string{"v.com/w=w0"}},
		{name: "two files of a folder contradict each other", files: map[string]string{"a/x.json": spec("v.com/w", "w0", "w1"), "a/y.json": spec("v.com/w", "w0")},
			units: []string{"v.com/w=w1"}, problems: []string{`a/x.json, a/y.json: each of these files defines device "v.com/w=w0"`}},
		{name: "nothing but a contradiction", files: map[string]string{"b/x.json": spec("v.com/w", "w0"), "b/y.json": spec("v.com/w", "w0")},
			missing: []string{"v.com/w"}, problems: []string{"b/x.json, b/y.json: "}},
		{name: "a third definition does not settle it", files: map[string]string{"a/x.json": spec("v.com/w", "w0"), "a/y.json": spec("v.com/w", "w0"), "b/z.json": spec("v.com/w", "w0")},
			missing: []string{"v.com/w"}, problems: []string{"a/x.json, a/y.json: "}},
		{name: "names of one piece of hardware; all is no unit", files: map[string]string{"a/x.json": twoNames}, units: []string{"v.com/gpu=1", "v.com/gpu=GPU-77"}},
		{name: "all alone is a unit", files: map[string]string{"a/x.json": spec("v.com/gpu", "all")}, units: []string{"v.com/gpu=all"}},
		{name: "equal edits without hardware are several units", files: map[string]string{"a/x.json": `{"cdiVersion": "0.5.0", "kind": "v.com/seat", "devices": [
			{"name": "s0", "containerEdits": {"env": ["SEAT=1"]}}, {"name": "s1", "containerEdits": {"env": ["SEAT=1"]}}]}`},
			units: []string{"v.com/seat=s0", "v.com/seat=s1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range tc.files {
				write(t, filepath.Join(root, name), content)
			}
			snap := load(new(cdispec.Reader), []string{filepath.Join(root, "a"), filepath.Join(root, "b")}, advertiser{}).snapshot
			var units []string
			for _, r := range snap.Resources {
				of := inventory.Units(snap.Of(r))
				units = append(units, names(of)...)
				if want := slices.Contains(tc.missing, r); want != (len(of) == 0) {
					t.Errorf("resource %s has %d devices", r, len(of))
				}
			}
			if !slices.Equal(units, tc.units) {
				t.Errorf("units %q, want %q", units, tc.units)
			}
			if len(snap.Problems) != len(tc.problems) {
				t.Fatalf("problems %q, want %q", snap.Problems, tc.problems)
			}
			for i, p := range snap.Problems {
				got := strings.ReplaceAll(p.String(), root+"/", "")
				if !strings.HasPrefix(got, tc.problems[i]) {
					t.Errorf("problem %q, want %q", got, tc.problems[i])
				}
			}
		})
	}
}

func TestLoadOfWhatIsNoFile(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(root, "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(root, "link.json")); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(filepath.Join(root, "big.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(16<<20 + 1); err != nil {
		t.Fatal(err)
	}
	big.Close()
	write(t, filepath.Join(root, "folder"), "a file")
	snap := load(new(cdispec.Reader), []string{root, filepath.Join(root, "folder"), filepath.Join(root, "none")}, advertiser{}).snapshot
	want := []string{"big.json: has 16777217 bytes", "folder: the folder cannot be read: not a directory", "link.json: ", "pipe.json: is a "}
	if len(snap.Problems) != len(want) {
		t.Fatalf("problems %q, want %q", snap.Problems, want)
	}
	for i, p := range snap.Problems {
		if got := strings.TrimPrefix(p.String(), root+"/"); !strings.HasPrefix(got, want[i]) {
			t.Errorf("problem %q, want %q", got, want[i])
		}
	}
}

// What is allocatable here must be injectable by everybody who uses the CDI library: no more, and but for kinds that are
// no resources no less.
func TestLoadAgreesWithTheLibrary(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 100 {
		root := t.TempDir()
		dirs := []string{filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")}
		for i := range 6 {
			var devices []string
			for _, n := range []string{"0", "1", "all"} {
				if rnd.IntN(2) == 0 {
					devices = append(devices, n)
				}
			}
			write(t, filepath.Join(dirs[rnd.IntN(3)], fmt.Sprintf("%d.json", i)), spec([]string{"v.com/x", "v.com/y"}[rnd.IntN(2)], devices...))
		}
		cache, err := cdilib.NewCache(cdilib.WithSpecDirs(dirs...), cdilib.WithAutoRefresh(false))
		if err != nil {
			t.Fatal(err)
		}
		ours := load(new(cdispec.Reader), dirs, advertiser{})
		got := make([]string, 0)
		for name, e := range ours.byName {
			got = append(got, name)
			if d := cache.GetDevice(name); d != nil && d.GetSpec().GetPath() != e.File.Path {
				t.Errorf("round %d: %s is of %s here and of %s there", round, name, e.File.Path, d.GetSpec().GetPath())
			}
		}
		slices.Sort(got)
		if want := cache.ListDevices(); !slices.Equal(got, want) {
			t.Errorf("round %d: %q here, %q there", round, got, want)
		}
	}
}

func FuzzReadSpec(f *testing.F) {
	f.Add([]byte(spec("v.com/w", "w0", "all")))
	f.Add([]byte("cdiVersion: 1.1.0\nkind: v.com/n\ndevices:\n- name: n\n  containerEdits:\n    netDevices: [{hostInterfaceName: a, name: b}]\n"))
	f.Add([]byte(`{"cdiVersion": "0.7.0", "kind": "v.com/w", "devices": [{"name": "w", "containerEdits": {"mounts": [null], "intelRdt": {}}}]}`))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "x.yaml"), string(data))
		c := load(new(cdispec.Reader), []string{dir}, advertiser{})
		for name := range c.byName {
			h := cdispec.Host{ProcDevices: os.DevNull, SysClassNet: dir}
			_ = h.Check(c.byName[name], false) // must not panic either
		}
		if len(c.snapshot.Devices) == 0 && len(c.snapshot.Problems) == 0 {
			t.Error("no device and no problem")
		}
	})
}
