//go:build cgo

package bundle

import (
	"reflect"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestClamp(t *testing.T) {
	all := []string{"CAP_KILL", "CAP_SYS_RESOURCE", "CAP_FROM_THE_FUTURE"}
	low := -998
	p := func() *specs.Process {
		return &specs.Process{
			Capabilities: &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 2000, Hard: 5000}, {Type: "RLIMIT_CORE", Soft: 1, Hard: 2}},
			OOMScoreAdj:  &low,
		}
	}
	free := hostLimits{caps: map[string]bool{"CAP_KILL": true, "CAP_SYS_RESOURCE": true}, anyRlimit: true}
	got := p()
	if changes := free.clamp(got); len(changes) != 0 || !reflect.DeepEqual(got, p()) {
		t.Errorf("a host that has everything: %v %+v", changes, got)
	}
	tight := hostLimits{caps: map[string]bool{"CAP_KILL": true, "CAP_SYS_RESOURCE": false},
		hard: map[string]uint64{"RLIMIT_NOFILE": 1000, "RLIMIT_CORE": 10}, oomScoreAdj: 3}
	got = p()
	var kinds []string
	for _, c := range tight.clamp(got) {
		kinds = append(kinds, c.kind)
	}
	if want := []string{"capability CAP_SYS_RESOURCE", "RLIMIT_NOFILE", "oom_score_adj"}; !slices.Equal(kinds, want) {
		t.Errorf("changes %q, want %q", kinds, want)
	}
	if c := got.Capabilities.Bounding; !slices.Equal(c, []string{"CAP_KILL", "CAP_FROM_THE_FUTURE"}) {
		t.Errorf("capabilities %q", c)
	}
	if l := got.Rlimits; l[0].Soft != 1000 || l[0].Hard != 1000 || l[1].Soft != 1 || l[1].Hard != 2 {
		t.Errorf("limits %+v", l)
	}
	if *got.OOMScoreAdj != 3 || low != -998 {
		t.Errorf("oom_score_adj %d; the caller's is %d", *got.OOMScoreAdj, low)
	}
}
