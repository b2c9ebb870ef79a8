package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
)

// Handler is a runtime handler beside the native one: an OCI runtime's program.
type Handler struct {
	Name string
	Path string // of the program
	Root string // directory of its state; one that a reboot empties
}

// probeTimeout bounds how long an OCI runtime may take to say what it can.
const probeTimeout = 10 * time.Second

// probeHandlers asks each OCI runtime what it can do. One that does not say can nothing that has to be asked for; one that is not there is an
// error.
func (s *Server) probeHandlers(ctx context.Context) (map[string]hostfacts.Runtime, error) {
	all := map[string]hostfacts.Runtime{}
	for _, h := range s.cfg.Handlers {
		if _, err := exec.LookPath(h.Path); err != nil {
			return nil, fmt.Errorf("runtime handler %q: %w", h.Name, err)
		}
		r := hostfacts.Runtime{OCIRuntime: protocol.OCIRuntime{Path: h.Path, Root: h.Root}}
		f, err := ociFeatures(ctx, h.Path)
		if err != nil {
			s.cfg.Log.Warn("an OCI runtime does not say what it can do", "handler", h.Name, "error", err)
		} else {
			r.RecursiveReadOnly, r.UserNamespaces = canReadOnly(f), canMapIDs(f)
		}
		all[h.Name] = r
	}
	return all, nil
}

// ociFeatures runs the program's command "features".
func ociFeatures(ctx context.Context, path string) (f features.Features, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "features").Output()
	if err != nil {
		return f, fmt.Errorf("%s features: %w", path, err)
	}
	if err := json.Unmarshal(out, &f); err != nil {
		return f, fmt.Errorf("%s features: %w", path, err)
	}
	return f, nil
}

func canReadOnly(f features.Features) bool { return slices.Contains(f.MountOptions, "rro") }

func canMapIDs(f features.Features) bool {
	l := f.Linux
	return l != nil && slices.Contains(l.Namespaces, "user") && l.MountExtensions != nil && l.MountExtensions.IDMap != nil &&
		l.MountExtensions.IDMap.Enabled != nil && *l.MountExtensions.IDMap.Enabled
}

// handlers lists the runtime handlers with what they can do here, as the host and they were found to be. The one without a name is
// the default.
func (s *Server) handlers() []*cri.RuntimeHandler {
	list := []*cri.RuntimeHandler{}
	for _, name := range append([]string{"", nativeHandler}, slices.Sorted(maps.Keys(s.host.Runtimes))...) {
		h := s.host.For(name)
		list = append(list, &cri.RuntimeHandler{Name: name, Features: &cri.RuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: h.RecursiveReadOnly, UserNamespaces: h.NoUserNamespaces == ""}})
	}
	return list
}

// checkHandler refuses a runtime handler that is not there. None is the default one.
func (s *Server) checkHandler(field, handler string) error {
	if _, ok := s.host.Runtimes[handler]; ok || handler == "" || handler == nativeHandler {
		return nil
	}
	names := append([]string{nativeHandler}, slices.Sorted(maps.Keys(s.host.Runtimes))...)
	return fmt.Errorf("%s %q is unknown; there is %q (key runtime.handlers): %w", field, handler, strings.Join(names, ", "), errdefs.ErrInvalidArgument)
}
