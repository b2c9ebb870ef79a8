//go:build cgo

package ocicmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
)

// hookError says that a hook of a container that was complete has failed.
type hookError struct {
	kind   configs.HookName
	number int // in the list of its kind
	path   string
	err    error // with what it has written
}

// Error is in libcontainer's words about other hooks, with the path.
func (e *hookError) Error() string {
	return fmt.Sprintf("error running %s hook #%d (%s): %v", e.kind, e.number, e.path, e.err)
}

// Unwrap returns how the hook has failed.
func (e *hookError) Unwrap() error { return e.err }

// TellBundle makes a directory the bundle that a container's hooks are told; libcontainer takes the working directory for it.
func TellBundle(config *configs.Config, dir string) {
	config.Labels = slices.DeleteFunc(config.Labels, func(l string) bool { return strings.HasPrefix(l, bundleLabel) })
	config.Labels = append(config.Labels, bundleLabel+dir)
}

const bundleLabel = "bundle="

// takePoststart takes the poststart hooks out of a configuration. libcontainer would run them at the same moment, when the first process is ready to
// execute the program, and one that fails could not be told from a program that cannot be executed.
func takePoststart(config *configs.Config) configs.HookList {
	hooks := config.Hooks[configs.Poststart]
	delete(config.Hooks, configs.Poststart)
	return hooks
}

// runPoststart runs them in their order, up to the first that fails: a *hookError.
func runPoststart(lc *libcontainer.Container, hooks configs.HookList) error {
	if len(hooks) == 0 {
		return nil
	}
	state, err := lc.OCIState()
	if err != nil {
		return err
	}
	for i, h := range hooks {
		if err := h.Run(state); err != nil {
			failed := &hookError{kind: configs.Poststart, number: i, err: err}
			if command, ok := h.(configs.CommandHook); ok {
				failed.path = command.Path
			}
			return failed
		}
	}
	return nil
}
