package devices

import (
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/book"
)

// Reasons of verdicts and errors, as a pod's status shows them.
const (
	// ReasonDevicesNotReady: the pod waits for its devices.
	ReasonDevicesNotReady = "DevicesNotReady"
	// ReasonRefused: the pod is never to have its devices. It is the reason with which a kubelet fails such a pod.
	ReasonRefused = "UnexpectedAdmissionError"
)

// Phase is what a pod may do.
type Phase string

const (
	// Admitted: it has all its devices.
	Admitted Phase = "Admitted"
	// Held: it waits. It is to ask again when a subscription ticks.
	Held Phase = "Held"
	// Failed: it is never to run.
	Failed Phase = "Failed"
)

// Verdict is what is decided about a pod that asks for devices.
type Verdict struct {
	Phase Phase
	// Reason and Message are those of the pod's status; empty when it is admitted.
	Reason, Message string
}

// NotReadyError says that devices cannot be had now but may be later. It is an errdefs.ErrUnavailable, and what else Err is.
type NotReadyError struct {
	// Resource is the name of the resource that is wanting.
	Resource string
	// Err says what is wanting of it.
	Err error
}

// Reason is ReasonDevicesNotReady: what the pod's condition or the container's waiting state gives as its reason.
func (e *NotReadyError) Reason() string { return ReasonDevicesNotReady }

// Error names the resource.
func (e *NotReadyError) Error() string { return fmt.Sprintf("%s is not ready: %v", e.Resource, e.Err) }

// Unwrap makes the error an errdefs.ErrUnavailable.
func (e *NotReadyError) Unwrap() []error { return []error{errdefs.ErrUnavailable, e.Err} }

func held(err error) Verdict {
	return Verdict{Phase: Held, Reason: ReasonDevicesNotReady, Message: err.Error()}
}

// waitsFor is the error of one who is to wait.
func waitsFor(w *book.Wait) error { return &NotReadyError{w.Resource, w.Err} }
