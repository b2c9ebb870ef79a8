package devices

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// ReasonDevicesNotReady is the reason with which a pod waits for its devices.
const ReasonDevicesNotReady = "DevicesNotReady"

// NotReadyError is the error of Grant when a container's devices cannot be had now but may be later. It is an
// errdefs.ErrUnavailable, and what else Err is.
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
