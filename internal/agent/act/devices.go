package act

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/devices"
)

// Grants has pods admitted with the devices that they ask for.
type Grants struct{ Devices Admission }

// Admission gives pods devices.
type Admission interface {
	// Admit gives a pod that asks for devices all of them, or says whether it waits or fails. It is idempotent.
	Admit(ctx context.Context, pod *v1.Pod) (devices.Verdict, error)
}

// grant has the pod admitted with all its devices before anything of it is made.
func (g *Grants) grant(ctx context.Context, pod *v1.Pod, _ plan.Action) error {
	v, err := g.Devices.Admit(ctx, pod)
	switch {
	case err != nil:
		v = devices.Verdict{Phase: devices.Held, Reason: plan.ReasonDevicesNotReady, Message: err.Error()}
	case v.Phase == devices.Admitted:
		return nil
	}
	if v.Phase == devices.Failed {
		// The pod's end tells of it.
		return &Never{plan.Rejected(v.Reason, v.Message)}
	}
	return &Failed{Reason: v.Reason, Fault: err != nil, Err: errors.New(v.Message)}
}
