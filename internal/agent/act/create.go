package act

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/kit/ids"
)

// Creates has the runtime create containers.
type Creates struct {
	Runtime CreateRuntime
	// CDI knows whether the runtime honours CDI devices.
	CDI *cdiprobe.Prober
}

// CreateRuntime is CRI, as far as containers are made and started by it.
type CreateRuntime interface {
	CreateContainer(ctx context.Context, in *criv1.CreateContainerRequest, opts ...grpc.CallOption) (*criv1.CreateContainerResponse, error)
	StartContainer(ctx context.Context, in *criv1.StartContainerRequest, opts ...grpc.CallOption) (*criv1.StartContainerResponse, error)
	// Generation is another one whenever another runtime may answer.
	Generation() cri.Generation
}

// create creates a container; one with CDI devices, in whichever way it asks for them, only by a runtime that is known not to leave them out.
func (c *Creates) create(ctx context.Context, name string, req *criv1.CreateContainerRequest) (id ids.ContainerID, err error) {
	var verdict cdiprobe.Verdict
	asks := cdiprobe.Asks(req.Config)
	if asks {
		switch verdict, err = c.CDI.Ask(ctx, req); {
		case err != nil:
			return "", because(plan.ReasonCreateError, fmt.Errorf("it is not known whether the runtime honours CDI devices: %s", text(err)))
		case verdict.Answer != cdiprobe.Honours:
			return "", because(plan.ReasonDevicesNotReady, errors.New(cdiprobe.Held(name, verdict)))
		}
	}
	created, err := c.Runtime.CreateContainer(ctx, req)
	if err != nil {
		return "", because(plan.ReasonCreateError, errors.New(lasting(text(err))))
	}
	if asks && c.Runtime.Generation() != verdict.Generation {
		// Another one may have created it than the one that was asked. It is made anew: one that was not started is removed before.
		return "", because(plan.ReasonCreateError, errors.New("the container runtime was restarted while the container was created"))
	}
	return ids.ContainerID(created.ContainerId), nil
}
