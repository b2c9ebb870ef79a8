package fsck

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	imagefsck "monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/state"
)

const img = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// whole is a node with one sandbox and one container in it.
func whole(t *testing.T) *facts {
	t.Helper()
	empty, err := imagefsck.Check(t.Context(), imagefsck.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	empty.Pins = map[ids.ContainerID][]ids.ImageID{"c": {img}}
	at := time.Now()
	return &facts{boot: "now", images: empty, hasRunDir: true,
		containers: map[string]container.Record{"c": {ID: "c", SandboxID: "s", BootID: "now", CreatedAt: at, ImageID: img}},
		sandboxes: map[string]sandbox.Record{"s": {ID: "s", BootID: "now", CreatedAt: at, ReadyAt: at,
			Stored: records.Proto[*cri.PodSandboxConfig]{Message: &cri.PodSandboxConfig{}}}},
		unreadContainers: records.UnreadOf(nil), unreadSandboxes: records.UnreadOf(nil),
		addresses: map[ids.SandboxID]lease.Held{"s": {Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Interface: "veth1"}},
		cni:       map[string]bool{}, links: map[string]bool{"veth1": true},
		layers:  map[string]folder{"c": {path: "/data/c", upper: true}},
		bundles: map[string]folder{"c": {path: "/run/c", used: true}}, pods: map[string]folder{"s": {path: "/run/s", used: true}},
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *facts)
		finds  []string // "severity kind object: problem", with + in front of what a repair does something about
	}{
		"whole":    {func(*facts) {}, nil},
		"rebooted": {func(f *facts) { f.boot, f.bundles, f.pods, f.links = "later", nil, nil, nil }, nil},
		"container half made": {func(f *facts) {
			f.containers["n"] = container.Record{ID: "n", SandboxID: "s"}
			f.bundles["n"] = folder{path: "/run/n"}
		},
			[]string{"leftover container n: it was being made or removed"}},
		"container half removed": {func(f *facts) {
			f.containers["c"] = container.Record{ID: "c", SandboxID: "s", CreatedAt: time.Now(), Removing: true}
			f.images.Pins = nil
		}, []string{"leftover container c: it was being made or removed"}},
		"no layer":                {func(f *facts) { delete(f.layers, "c") }, []string{"damaged container c: its writable layer is missing"}},
		"no upper":                {func(f *facts) { f.layers["c"] = folder{path: "/data/c"} }, []string{"damaged container c: its writable layer is missing"}},
		"no pin and no image":     {func(f *facts) { f.images.Pins = nil }, []string{"damaged container c: its image " + img + " is not there"}},
		"nothing known of images": {func(f *facts) { f.images.Pins, f.images.Known = nil, false }, nil},
		"no sandbox": {func(f *facts) { delete(f.sandboxes, "s"); f.pods = nil },
			[]string{"damaged container c: its sandbox s is in no record", "leftover address s: the addresses [10.0.0.2]"}},
		"sandbox cannot be read": {func(f *facts) {
			delete(f.sandboxes, "s")
			f.unreadSandboxes = records.UnreadOf(&state.UndecodableError{Key: "s", Err: errors.New("x")})
		}, nil},
		"sandbox half made":   {func(f *facts) { f.sandboxes["n"] = sandbox.Record{ID: "n"} }, []string{"leftover sandbox n: it was being made"}},
		"sandbox's folder":    {func(f *facts) { f.pods = nil }, []string{"damaged sandbox s: its folder"}},
		"no address":          {func(f *facts) { f.addresses = nil }, []string{"damaged address s: the sandbox has the addresses"}},
		"address of a plugin": {func(f *facts) { f.addresses = nil; f.cni["s"] = true }, nil},
		"strange folders": {func(f *facts) {
			f.layers["x"], f.bundles["y"], f.pods["z"] = folder{path: "/data/x"}, folder{path: "/run/y"}, folder{path: "/run/z", used: true}
		}, []string{"+leftover directory /data/x: no record", "+leftover directory /run/y: no record", "leftover directory /run/z: no record knows the sandbox, and something is mounted"}},
		"a strange container runs": {func(f *facts) {
			f.layers["x"], f.bundles["x"] = folder{path: "/data/x"}, folder{path: "/run/x", used: true}
		},
			[]string{"leftover directory /data/x: no record knows the container, and something", "leftover directory /run/x: no record knows the container, and something"}},
		"record cannot be read": {func(f *facts) {
			f.layers["x"], f.images.Pins["x"] = folder{path: "/data/x"}, []ids.ImageID{img}
			f.unreadContainers = records.UnreadOf(&state.UndecodableError{Key: "x", Err: errors.New("x")})
		}, nil},
		"pin of a container that is gone": {func(f *facts) { f.images.Pins["x"] = []ids.ImageID{img} }, []string{"+leftover pin x: no record knows the container"}},
		"address of a sandbox that is gone": {func(f *facts) {
			f.addresses["x"] = lease.Held{Interface: "veth2"}
			f.addresses["y"], f.links["veth3"] = lease.Held{Interface: "veth3"}, true
			f.cni["z"] = true
		}, []string{"+leftover address x: ", "leftover address y: ", "leftover address z: a sandbox that is gone is still connected"}},
		"address of a sandbox that was stopped": {func(f *facts) {
			s := f.sandboxes["s"]
			s.StoppedAt, s.ReclaimedAt = time.Now(), time.Now()
			f.sandboxes["s"], f.links = s, nil
			delete(f.pods, "s")
		}, []string{"+leftover address s: the addresses [10.0.0.2] belong to a sandbox that is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := whole(t)
			c.change(f)
			found := judge(f)
			for i, g := range found {
				said := fmt.Sprintf("%s %s %s: %s", g.Severity, g.Kind, g.Object, g.Problem)
				if g.Repairable {
					said = "+" + said
				}
				if i >= len(c.finds) || !strings.HasPrefix(said, c.finds[i]) {
					t.Errorf("found %s", said)
				}
				if g.Repair == "" || g.Repairable == strings.HasPrefix(g.Repair, "none") {
					t.Errorf("%s: the repair is %q", said, g.Repair)
				}
			}
			if len(found) != len(c.finds) {
				t.Errorf("%d findings, want %v", len(found), c.finds)
			}
		})
	}
}
