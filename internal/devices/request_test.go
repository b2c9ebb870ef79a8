package devices

import (
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
)

func TestAdmitRefusesWhatMakesNoSense(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	cpu := asks("c", 0)
	cpu.Resources["cpu"] = 1
	for name, tc := range map[string]struct {
		req  PodRequest
		want func(error) bool
	}{
		"no pod":                       {PodRequest{Containers: []ContainerRequest{asks("c", 1)}}, errdefs.IsInvalidArgument},
		"no container":                 {request("p", "", 1), errdefs.IsInvalidArgument},
		"no role":                      {podOf("p", ContainerRequest{Name: "c"}), errdefs.IsInvalidArgument},
		"a negative number":            {request("p", "c", -1), errdefs.IsInvalidArgument},
		"a number beyond reason":       {request("p", "c", 1<<40), errdefs.IsInvalidArgument},
		"a resource that is no device": {podOf("p", cpu), errdefs.IsInvalidArgument},
		"another number than granted":  {request("a", "c", 2), errdefs.IsFailedPrecondition},
		"nothing where it has some":    {request("a", "c", 0), errdefs.IsFailedPrecondition},
	} {
		if v, err := m.Admit(t.Context(), tc.req); !tc.want(err) {
			t.Errorf("%s: got %v, %v", name, v, err)
		}
	}
	admit(t, m, podOf("p", ContainerRequest{Name: "none", Role: alloc.Init}))
	if n := len(m.Grants()); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
	if _, err := m.Grant(t.Context(), podOf("p").container("none")); !errdefs.IsNotFound(err) {
		t.Errorf("of a container without devices: %v", err)
	}
}
