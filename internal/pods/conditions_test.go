package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSetCondition(t *testing.T) {
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := first.Add(time.Minute)
	probed := metav1.NewTime(first)
	st := &v1.PodStatus{Conditions: []v1.PodCondition{{Type: "example.com/other", Status: v1.ConditionTrue}}}
	for _, c := range []struct {
		name  string
		set   v1.PodCondition
		at    time.Time
		since time.Time
	}{
		{"new", v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, LastProbeTime: probed}, first, first},
		{"the same status for another reason", v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "Why"}, later, first},
		{"another status", v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}, later, later},
	} {
		SetCondition(st, c.set, c.at)
		got := Condition(st, v1.PodReady)
		if got == nil || got.Status != c.set.Status || got.Reason != c.set.Reason || !got.LastTransitionTime.Time.Equal(c.since) || got.LastProbeTime != probed {
			t.Errorf("%s: %+v, want it since %s", c.name, got, c.since)
		}
		if len(st.Conditions) != 2 || st.Conditions[0].Type != "example.com/other" {
			t.Fatalf("%s: %+v", c.name, st.Conditions)
		}
	}
	if !IsTrue(st, v1.PodReady) || IsTrue(st, v1.PodInitialized) || Condition(st, v1.PodInitialized) != nil {
		t.Errorf("%+v", st.Conditions)
	}
}

func TestReadiness(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	spec := v1.PodSpec{
		InitContainers: []v1.Container{{Name: "first"}, {Name: "proxy", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "web"}, {Name: "log"}},
	}
	status := func(ready map[string]bool) (st v1.PodStatus) {
		for role, c := range Containers(&spec) {
			r, known := ready[c.Name]
			switch s := (v1.ContainerStatus{Name: c.Name, Ready: r}); {
			case !known:
			case role.AmongInit():
				st.InitContainerStatuses = append(st.InitContainerStatuses, s)
			default:
				st.ContainerStatuses = append(st.ContainerStatuses, s)
			}
		}
		return st
	}
	up := map[string]bool{"first": false, "proxy": true, "web": true, "log": true}
	phase := func(p v1.PodPhase, ready map[string]bool) v1.PodStatus { st := status(ready); st.Phase = p; return st }
	gate := func(conditions ...v1.PodCondition) v1.PodStatus {
		st := status(up)
		st.Conditions = conditions
		return st
	}
	const open v1.PodConditionType = "example.com/open"
	for name, c := range map[string]struct {
		gates             []v1.PodReadinessGate
		st                v1.PodStatus
		containers, ready string // reason: message
	}{
		"all":           {nil, status(up), ": ", ": "},
		"no status yet": {nil, status(nil), "ContainersNotReady: containers with unknown status: [proxy web log]", ""},
		"an app and a sidecar are not": {nil, status(map[string]bool{"proxy": false, "web": false, "log": true}),
			"ContainersNotReady: containers with unready status: [proxy web]", ""},
		"unknown and unready":         {nil, status(map[string]bool{"proxy": true, "web": false}), "ContainersNotReady: containers with unknown status: [log], containers with unready status: [web]", ""},
		"succeeded":                   {nil, phase(v1.PodSucceeded, map[string]bool{"proxy": false, "web": false, "log": false}), "PodCompleted: ", ""},
		"failed":                      {nil, phase(v1.PodFailed, nil), "PodFailed: ", ""},
		"a gate that nobody knows of": {[]v1.PodReadinessGate{{ConditionType: open}}, gate(), ": ", `ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.com/open" does not exist.`},
		"a closed gate": {[]v1.PodReadinessGate{{ConditionType: open}}, gate(v1.PodCondition{Type: open, Status: v1.ConditionUnknown}), ": ",
			`ReadinessGatesNotReady: the status of pod readiness gate "example.com/open" is not "True", but Unknown`},
		"an open gate":                      {[]v1.PodReadinessGate{{ConditionType: open}}, gate(v1.PodCondition{Type: open, Status: v1.ConditionTrue}), ": ", ": "},
		"a gate of containers that are not": {[]v1.PodReadinessGate{{ConditionType: open}}, status(nil), "ContainersNotReady: containers with unknown status: [proxy web log]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			spec.ReadinessGates = c.gates
			if c.ready == "" {
				c.ready = c.containers
			}
			containers, ready := Readiness(&spec, &c.st)
			for _, of := range []struct {
				got  v1.PodCondition
				kind v1.PodConditionType
				want string
			}{{containers, v1.ContainersReady, c.containers}, {ready, v1.PodReady, c.ready}} {
				if got := of.got.Reason + ": " + of.got.Message; of.got.Type != of.kind || got != of.want || (of.got.Status == v1.ConditionTrue) != (of.want == ": ") {
					t.Errorf("%+v, want %s for %q", of.got, of.kind, of.want)
				}
			}
		})
	}
}
