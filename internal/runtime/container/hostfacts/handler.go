package hostfacts

import (
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/ocispec"
)

// NativeHandler is the runtime handler whose containers the executor makes itself.
const NativeHandler = "native"

// Runtime is an OCI runtime behind another handler, with what it can do.
type Runtime struct {
	protocol.OCIRuntime
	RecursiveReadOnly, UserNamespaces bool
}

// RuntimeOf returns the OCI runtime of a sandbox's handler; nil: native.
func (f Facts) RuntimeOf(handler string) (*protocol.OCIRuntime, error) {
	if handler == "" || handler == NativeHandler {
		return nil, nil
	}
	r, ok := f.Runtimes[handler]
	if !ok {
		return nil, fmt.Errorf("the runtime handler %q of the sandbox is no longer configured (key runtime.handlers): %w", handler, errdefs.ErrFailedPrecondition)
	}
	return &r.OCIRuntime, nil
}

// For is what the host can do for containers of a handler.
func (f Facts) For(handler string) ocispec.Host {
	h := f.Spec
	if r, ok := f.Runtimes[handler]; ok {
		h.RecursiveReadOnly = h.RecursiveReadOnly && r.RecursiveReadOnly
		if h.NoUserNamespaces == "" && !r.UserNamespaces {
			h.NoUserNamespaces = fmt.Sprintf("the runtime handler %q cannot map the ids of mounts", handler)
		}
	}
	return h
}
