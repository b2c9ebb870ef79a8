package status

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/report"
)

func TestSummarize(t *testing.T) {
	held := []report.Holder{{Namespace: "default", Pod: "p", Container: "c"}}
	all, problems := summarize(report.List{
		Devices: []report.Device{
			{Resource: "a.com/b", Name: "0", Health: report.Healthy, Holders: held},
			{Resource: "a.com/b", Name: "1", Health: report.Unhealthy, Reason: "it is gone", Holders: held},
			{Resource: "a.com/b", Name: "2", Health: report.Unhealthy},
			{Resource: "a.com/b", Name: "3", Health: report.Missing, Reason: "nobody knows it", Holders: held},
			{Resource: "a.com/b", Name: "all", Health: report.Healthy, Whole: true},
			{Resource: "c.com/d", Name: "0", Health: report.Healthy},
		},
		Problems: []report.Problem{{Paths: []string{"/etc/cdi/x.json"}, Message: "it is bad"}},
	})
	if all.Counts != (protocol.Counts{Total: 4, Healthy: 2, Granted: 3, Missing: 1}) || len(all.Resources) != 2 ||
		all.Resources[0] != (protocol.Resource{Name: "a.com/b", Counts: protocol.Counts{Total: 3, Healthy: 1, Granted: 3, Missing: 1}}) ||
		all.Resources[1] != (protocol.Resource{Name: "c.com/d", Counts: protocol.Counts{Total: 1, Healthy: 1}}) {
		t.Errorf("%+v", all)
	}
	want := []string{"a.com/b=1, which default/p/c has, is Unhealthy: it is gone", "a.com/b=3, which default/p/c has, is Missing: nobody knows it", "/etc/cdi/x.json: it is bad"}
	for i, p := range problems {
		if p.About != "devices" || i >= len(want) || p.Message != want[i] {
			t.Errorf("problem %d: %+v", i, p)
		}
	}
	if len(problems) != len(want) {
		t.Errorf("%d problems", len(problems))
	}
}

// TestIllness: what is wrong with several devices is said once, whatever resources they are of.
func TestIllness(t *testing.T) {
	var all []report.Device
	for i := range 6 {
		for _, of := range []string{"a.com/b", "c.com/d"} {
			all = append(all, report.Device{Resource: of, Name: fmt.Sprint(i), Health: report.Unhealthy, Reason: "its plugin is away", Holders: []report.Holder{{Namespace: "default", Pod: fmt.Sprint("p", i), Container: "c"}}})
		}
	}
	all = append(all, report.Device{Resource: "e.com/f", Name: "0", Health: report.Missing, Reason: "its plugin is away", Holders: all[0].Holders})
	_, problems := summarize(report.List{Devices: all})
	var got []string
	for _, p := range problems {
		got = append(got, p.Message)
	}
	if want := []string{
		"a.com/b=0, which default/p0/c has; c.com/d=0, which default/p0/c has; a.com/b=1, which default/p1/c has; c.com/d=1, which default/p1/c has; and 8 more, are Unhealthy: its plugin is away",
		"e.com/f=0, which default/p0/c has, is Missing: its plugin is away",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCountPods(t *testing.T) {
	var all []v1.Pod
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, "", v1.PodFailed, v1.PodSucceeded, v1.PodSucceeded, v1.PodUnknown} {
		all = append(all, v1.Pod{Status: v1.PodStatus{Phase: phase}})
	}
	if n := countPods(all); *n != (protocol.Pods{Running: 1, Pending: 2, Succeeded: 2, Failed: 1, Unknown: 1}) {
		t.Errorf("%+v", n)
	}
}
