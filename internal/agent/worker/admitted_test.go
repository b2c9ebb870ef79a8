package worker

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods/allocated"
)

type noRuntime struct{ Runtime }

func (noRuntime) Identity() cri.Identity { return cri.Identity{} }

// TestAPodIsWhatItWasGiven: what is decided and told of a pod goes by what it was admitted with, whatever it asks for by now.
func TestAPodIsWhatItWasGiven(t *testing.T) {
	pod := func(cpu string) *v1.Pod {
		p := &v1.Pod{}
		p.UID = "a"
		p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
		return p
	}
	ledger := admit.NewLedger(admit.Config{Node: func() *v1.Node { return nil }})
	w := &Worker{cfg: Config{Ledger: ledger, Runtime: noRuntime{}}, uid: "a"}
	first, later := pod("1"), pod("2")
	if in := w.input(&wish{pod: first}, plan.Observed{}); in.Pod != first {
		t.Error("before it is admitted a pod is what it asks for")
	}
	if refusal := ledger.Take(first, true); refusal != nil {
		t.Fatal(refusal)
	}
	in := w.input(&wish{pod: later}, plan.Observed{})
	if has := allocated.Of(in.Pod).Container("c").Requests; has.Cpu().String() != "1" {
		t.Errorf("it has %v", has)
	}
	if told := plan.Status(in).ContainerStatuses[0].AllocatedResources; told.Cpu().String() != "1" {
		t.Errorf("its status tells of %v", told)
	}
}
