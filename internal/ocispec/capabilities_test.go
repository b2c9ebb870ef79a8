package ocispec

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCapabilities(t *testing.T) {
	all := knownCapabilities()
	without := func(list []string, names ...string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(c string) bool { return slices.Contains(names, c) })
	}
	with := func(list []string, names ...string) []string { return sorted(slices.Concat(list, names)) }
	host := without(all, "CAP_SYS_RESOURCE")
	list := func(l ...string) []string { return l }
	for _, c := range []struct {
		name               string
		privileged         bool
		add, drop, ambient []string
		want, wantAmbient  []string
		missing            []string
		err                string
	}{
		{name: "default", want: defaultCapabilities()},
		{name: "add", add: list("NET_ADMIN", "cap_sys_time"), want: with(defaultCapabilities(), "CAP_NET_ADMIN", "CAP_SYS_TIME")},
		{name: "drop", drop: list("CHOWN", "CAP_KILL", "SYS_ADMIN"), want: without(defaultCapabilities(), "CAP_CHOWN", "CAP_KILL")},
		{name: "add all", add: list("ALL"), want: host, missing: list("CAP_SYS_RESOURCE")},
		{name: "add all but one", add: list("all"), drop: list("NET_RAW"), want: without(host, "CAP_NET_RAW"), missing: list("CAP_SYS_RESOURCE")},
		{name: "drop all", drop: list("ALL"), want: nil},
		{name: "drop all but one", add: list("NET_BIND_SERVICE"), drop: list("ALL"), want: list("CAP_NET_BIND_SERVICE")},
		{name: "add and drop the same", add: list("SYS_TIME"), drop: list("SYS_TIME"), want: defaultCapabilities()},
		{name: "not on this host", add: list("SYS_RESOURCE"), want: defaultCapabilities(), missing: list("CAP_SYS_RESOURCE")},
		{name: "ambient", ambient: list("NET_ADMIN"), want: with(defaultCapabilities(), "CAP_NET_ADMIN"), wantAmbient: list("CAP_NET_ADMIN")},
		{name: "ambient, all dropped", ambient: list("NET_ADMIN"), drop: list("ALL"), want: list("CAP_NET_ADMIN"), wantAmbient: list("CAP_NET_ADMIN")},
		{name: "ambient, dropped", ambient: list("CHOWN"), drop: list("CHOWN"), want: without(defaultCapabilities(), "CAP_CHOWN")},
		{name: "privileged", privileged: true, drop: list("ALL"), want: host, missing: list("CAP_SYS_RESOURCE")},
		{name: "unknown to add", add: list("FLY"), err: `add_capabilities: "FLY"`},
		{name: "unknown to drop", drop: list("CAP_FLY"), err: `drop_capabilities: "CAP_FLY"`},
		{name: "unknown ambient", ambient: list(""), err: `add_ambient_capabilities: ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, missing, err := Capabilities(&cri.LinuxContainerSecurityContext{
				Privileged:   c.privileged,
				Capabilities: &cri.Capability{AddCapabilities: c.add, DropCapabilities: c.drop, AddAmbientCapabilities: c.ambient},
			}, host)
			if c.err != "" {
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want InvalidArgument with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for set, pair := range map[string][2][]string{
				"bounding": {got.Bounding, c.want}, "effective": {got.Effective, c.want}, "permitted": {got.Permitted, c.want},
				"inheritable": {got.Inheritable, c.wantAmbient}, "ambient": {got.Ambient, c.wantAmbient}, "missing": {missing, c.missing},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%s: %v, want %v", set, pair[0], pair[1])
				}
			}
		})
	}
	if !slices.IsSorted(all) || !slices.IsSorted(defaultCapabilities()) || len(all) != 41 || len(defaultCapabilities()) != 14 {
		t.Errorf("the lists are not as they should be: %d known, %d by default", len(all), len(defaultCapabilities()))
	}
}
