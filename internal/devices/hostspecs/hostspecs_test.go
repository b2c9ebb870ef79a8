package hostspecs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/hostdevice"
	"monopod.dev/monopod/internal/devices/hostnode"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/state"
)

// rig is a host of which the test makes the nodes, and its folder of specs.
type rig struct {
	t    *testing.T
	dir  string // of the specs
	host hostnode.Host
	Specs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &rig{t: t, dir: filepath.Join(root, "cdi"), host: hostnode.Host{Dev: filepath.Join(root, "dev"), Sys: filepath.Join(root, "sys")}}
	r.Specs = Specs{Dirs: []string{r.dir}, Host: cdispec.ThisHost()}
	must(t, os.MkdirAll(r.dev("serial/by-id"), 0o755))
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) dev(name string) string { return filepath.Join(r.host.Dev, name) }

// node makes a copy of /dev/null, or of another of the memory devices.
func (r *rig) node(name string, minor uint32) {
	r.t.Helper()
	must(r.t, unix.Mknod(r.dev(name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, minor))))
}

// turn makes a link lead to a node, as udev does.
func (r *rig) turn(link, target string) {
	r.t.Helper()
	must(r.t, errors.Join(os.Symlink(target, r.dev(link)+".new"), os.Rename(r.dev(link)+".new", r.dev(link))))
}

func (r *rig) plan(path string, req hostdevice.Request) (hostdevice.Plan, string) {
	r.t.Helper()
	n, err := r.host.Look(r.dev(path))
	must(r.t, err)
	req.Dev, req.ByPath = r.host.Dev, true
	p, err := hostdevice.Decide(req, n)
	must(r.t, err)
	return p, n.Real
}

func (r *rig) add(path string, req hostdevice.Request) Added {
	r.t.Helper()
	p, real := r.plan(path, req)
	a, err := r.Add(r.dir, p, real, false)
	must(r.t, err)
	return a
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, errors.Join(os.MkdirAll(r.dir, 0o755), os.WriteFile(path, []byte(text), 0o600)))
	return path
}

func (r *rig) files() string {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	must(r.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestAddAndRemove(t *testing.T) {
	r := newRig(t)
	r.node("ttyUSB0", 3)
	r.node("ttyUSB1", 5)
	a := r.add("ttyUSB0", hostdevice.Request{})
	if a.File != filepath.Join(r.dir, "monopod-device-ttyUSB0.yaml") || a.Replaced || a.Mates != nil || a.Same != nil {
		t.Errorf("%+v", a)
	}
	raw, err := os.ReadFile(a.File)
	must(t, err)
	want := `# Made by 'monopod device add'; 'monopod device rm ttyUSB0' takes it away.
cdiVersion: 0.5.0
containerEdits: {}
devices:
- containerEdits:
    deviceNodes:
    - hostPath: DEV/ttyUSB0
      path: DEV/ttyUSB0
      permissions: rw
      type: c
  name: ttyUSB0
kind: device.monopod.dev/serial
`
	if got := strings.ReplaceAll(string(raw), r.host.Dev, "DEV"); got != want {
		t.Errorf("wrote\n%s", got)
	}
	if info, err := os.Stat(a.File); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if a := r.add("ttyUSB1", hostdevice.Request{}); !slices.Equal(a.Mates, []string{"ttyUSB0"}) || a.Same != nil {
		t.Errorf("%+v", a)
	}
	if a := r.add("ttyUSB1", hostdevice.Request{Name: "again", Class: "own"}); a.Mates != nil || !slices.Equal(a.Same, []string{"device.monopod.dev/serial=ttyUSB1"}) {
		t.Errorf("%+v", a)
	}
	p, real := r.plan("ttyUSB0", hostdevice.Request{Class: "other", Permissions: "r"})
	if a, err = r.Add(r.dir, p, real, true); err != nil || !a.Replaced {
		t.Errorf("%+v, %v", a, err)
	}
	for name, kind := range map[string]string{"ttyUSB0": "other", "device.monopod.dev/serial=ttyUSB1": "serial", "again": "own"} {
		d, err := r.Find(name)
		if err != nil || d.Kind != hostdevice.Vendor+"/"+kind {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		must(t, r.Remove(d))
		if err := r.Remove(d); !errdefs.IsNotFound(err) {
			t.Errorf("%s is removed twice: %v", name, err)
		}
	}
	if got := r.files(); got != "" {
		t.Errorf("there are %s", got)
	}
}

func TestNothingOfOthersIsTouched(t *testing.T) {
	r := newRig(t)
	r.node("n0", 3)
	spec := func(kind string, names ...string) string {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["A=b"]}}`, n))
		}
		return fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(all, ", "))
	}
	files := map[string]string{
		"vendor.json":                spec("vendor.example/gpu", "gpu0"),
		"monopod-device-theirs.yaml": spec("vendor.example/x", "theirs"),
		"monopod-device-more.yaml":   spec("device.monopod.dev/host", "more", "evenmore"),
		"monopod-device-broken.yaml": "{",
		"by-hand.json":               spec("device.monopod.dev/own", "byhand"),
	}
	for name, text := range files {
		r.write(name, text)
	}
	for name, want := range map[string]string{
		"theirs":   "is there, and is of the kind vendor.example/x, which 'monopod device add' makes none of: give another --name",
		"more":     "is there, and defines other devices too (evenmore)",
		"evenmore": `the name "evenmore" is taken: ` + r.dir + "/monopod-device-more.yaml defines device.monopod.dev/host=evenmore; give another --name",
		"byhand":   `the name "byhand" is taken: ` + r.dir + "/by-hand.json defines device.monopod.dev/own=byhand",
	} {
		p, real := r.plan("n0", hostdevice.Request{Name: name})
		for _, replace := range []bool{false, true} {
			if _, err := r.Add(r.dir, p, real, replace); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("add %s, replace %v: %v", name, replace, err)
			}
		}
	}
	p, real := r.plan("n0", hostdevice.Request{Name: "broken"})
	if _, err := r.Add(r.dir, p, real, false); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "monopod-device-broken.yaml is there (it cannot be read); replace it with --replace, take it away with 'monopod device rm broken'") {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"gpu0":                    "vendor.json is of the kind vendor.example/gpu, which 'monopod device add' makes none of: take the device out of the file by hand",
		"vendor.example/gpu=gpu0": "vendor.json is of the kind vendor.example/gpu",
		"theirs":                  "monopod-device-theirs.yaml is of the kind",
		"more":                    "monopod-device-more.yaml defines other devices too (evenmore)",
		"broken":                  "monopod-device-broken.yaml cannot be read as a spec (",
		"none":                    `there is no device "none" that 'monopod device add' has made in ` + r.dir + ": there are byhand, evenmore, more",
		"vendor.example/gpu=gpu1": "there is no device",
		"../vendor":               "there is no device",
	} {
		if d, err := r.Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("find %s: %+v, %v", name, d, err)
		}
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(r.dir, name)); err != nil || string(got) != text {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	// A file that somebody has broken may be replaced, and one of our kind that lies under another name may go.
	if a, err := r.Add(r.dir, p, real, true); err != nil || !a.Replaced {
		t.Errorf("%+v, %v", a, err)
	}
	if d, err := r.Find("byhand"); err != nil || r.Remove(d) != nil || strings.Contains(r.files(), "by-hand") {
		t.Errorf("%+v, %v", d, err)
	}
}

// A name that two folders have is told apart by the folder, or by the kind.
func TestFindInSeveralFolders(t *testing.T) {
	r := newRig(t)
	r.node("n0", 3)
	r.add("n0", hostdevice.Request{Class: "a"})
	second := filepath.Join(filepath.Dir(r.dir), "second")
	p, real := r.plan("n0", hostdevice.Request{Class: "b"})
	_, err := (Specs{Dirs: []string{second}, Host: cdispec.ThisHost()}).Add(second, p, real, false)
	must(t, err)
	r.Dirs = append(r.Dirs, second)
	if _, err := r.Find("n0"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "device.monopod.dev/a=n0 ("+r.dir) || !strings.Contains(err.Error(), "device.monopod.dev/b=n0 ("+second) {
		t.Error(err)
	}
	d, err := r.Find("device.monopod.dev/b=n0")
	if err != nil || filepath.Dir(d.File) != second {
		t.Errorf("%+v, %v", d, err)
	}
	must(t, r.Remove(d))
}

// Of many who add a device of one name one does it, and the others are told.
func TestOneAddsAName(t *testing.T) {
	r := newRig(t)
	r.node("n0", 3)
	p, real := r.plan("n0", hostdevice.Request{})
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = r.Add(r.dir, p, real, false) })
	}
	wg.Wait()
	done := 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case !errdefs.IsAlreadyExists(err):
			t.Error(err)
		}
	}
	if done != 1 || r.files() != "monopod-device-n0.yaml" {
		t.Errorf("%d have added it, there are %s", done, r.files())
	}
}

// node runs a device manager on the folder.
func (r *rig) manager() (*devices.Manager, func(what string, ok func() bool)) {
	r.t.Helper()
	ignore := goleak.IgnoreCurrent()
	log := slog.New(slog.DiscardHandler)
	db, _, err := state.Open(state.Config{Path: filepath.Join(r.t.TempDir(), "agent.db")})
	must(r.t, err)
	m, err := devices.New(devices.Config{DB: db, CDI: cdi.Config{Dirs: r.Dirs}, Boot: "one", Log: log})
	must(r.t, err)
	must(r.t, m.Reconcile(r.t.Context(), nil, nil))
	ticks, unwatch := m.Watch()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	r.t.Cleanup(func() {
		unwatch()
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		db.Close()
		goleak.VerifyNone(r.t, ignore)
	})
	return m, func(what string, ok func() bool) {
		r.t.Helper()
		for end := time.After(time.Minute); !ok(); {
			select {
			case <-ticks:
			case <-end:
				r.t.Fatalf("waited in vain for %s: %+v, %+v", what, m.Devices(), m.Problems())
			}
		}
	}
}

const kind = hostdevice.Vendor + "/serial"

// A node that runs sees a device that is added, unplugged, plugged in again, and taken away, without being told.
func TestANodeFollowsAPlainNode(t *testing.T) {
	r := newRig(t)
	r.node("ttyUSB0", 3)
	m, await := r.manager()
	has := func(capacity, allocatable int64) func() bool {
		return func() bool {
			return m.Resources()[kind] == inventory.Quantity{Capacity: capacity, Allocatable: allocatable}
		}
	}
	r.add("ttyUSB0", hostdevice.Request{})
	await("the device", has(1, 1))
	must(t, os.Remove(r.dev("ttyUSB0")))
	await("its end", has(0, 0))
	if d := m.Devices(); len(d) != 1 || !strings.Contains(d[0].Unhealthy, r.dev("ttyUSB0")+" does not exist") {
		t.Errorf("%+v", d)
	}
	r.node("ttyUSB0", 5) // under another number
	await("its return", has(1, 1))
	d, err := r.Find("ttyUSB0")
	must(t, err)
	must(t, r.Remove(d))
	await("that it is forgotten", func() bool { _, known := m.Resources()[kind]; return !known && len(m.Devices()) == 0 })
}

// A device that is known by a link is the same wherever the link leads. A pod that had it as another node waits: the hardware under a
// name is compared with what was granted.
func TestANodeFollowsALink(t *testing.T) {
	r := newRig(t)
	const link = "serial/by-id/usb-X"
	r.node("ttyUSB0", 3)
	r.turn(link, "../../ttyUSB0")
	m, await := r.manager()
	r.add(link, hostdevice.Request{Name: "modem"})
	leadsTo := func(node string, healthy bool) func() bool {
		return func() bool {
			d := m.Devices()
			return len(d) == 1 && slices.Equal(d[0].Nodes, []string{r.dev(node)}) && (d[0].Unhealthy == "") == healthy && d[0].Absent != healthy
		}
	}
	await("the device", leadsTo("ttyUSB0", true))
	admit := func(uid string) devices.Phase {
		t.Helper()
		v, err := m.Admit(t.Context(), devices.PodRequest{UID: uid, Namespace: "default", Name: uid, Created: time.Unix(1, 0),
			Containers: []devices.ContainerRequest{{Name: "c", Role: alloc.Main, Resources: map[string]int64{kind: 1}}}})
		must(t, err)
		return v.Phase
	}
	grant := func(uid string) error {
		_, err := m.Grant(t.Context(), source.Container{PodUID: uid, PodNamespace: "default", PodName: uid, Name: "c"})
		return err
	}
	if phase := admit("a"); phase != devices.Admitted || grant("a") != nil {
		t.Fatalf("%v, %v", phase, grant("a"))
	}

	must(t, errors.Join(os.Remove(r.dev("ttyUSB0")), os.Remove(r.dev(link))))
	await("that it is away", func() bool { return m.Resources()[kind] == inventory.Quantity{} && m.Devices()[0].Unhealthy != "" })
	r.node("ttyUSB1", 5) // plugged in again, with another number
	r.turn(link, "../../ttyUSB1")
	await("the device under its other number", leadsTo("ttyUSB1", true))
	if err := grant("a"); err == nil || !strings.Contains(err.Error(), "ttyUSB1") {
		t.Errorf("the pod that had ttyUSB0: %v", err)
	}
	must(t, m.Release(t.Context(), "a"))
	if phase := admit("b"); phase != devices.Admitted || grant("b") != nil {
		t.Errorf("a new pod: %v, %v", phase, grant("b"))
	}

	// udev turns the link while the device stays.
	r.node("ttyUSB2", 7)
	r.turn(link, "../../ttyUSB2")
	await("where the link has turned", leadsTo("ttyUSB2", true))
	must(t, os.Remove(r.dev("ttyUSB2"))) // the link dangles
	await("that the link leads nowhere", leadsTo("ttyUSB2", false))
}
