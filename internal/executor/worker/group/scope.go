//go:build cgo

package group

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"monopod.dev/monopod/internal/executor/placeholder"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// A container whose cgroup is asked for as SLICE:PREFIX:NAME gets a scope of systemd. All that this worker does to the container's cgroup
// it does to the leaf below that (see package systemd), in the same way as without a scope; here is what comes on top.

// TakeScope replaces a scope by the path of its leaf, and returns it, or nil.
func TakeScope(path *string) (*systemd.Scope, error) {
	s, ok, err := systemd.ParseScope(*path)
	if err != nil || !ok {
		return nil, err
	}
	*path = s.Leaf()
	return &s, nil
}

// OpenScope makes the scope of a container, if it has one. close is for when the container's process is in it, or will never be.
func OpenScope(s *systemd.Scope, r *cgroups.Resources, pin bool, log *slog.Logger) (close func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	p, err := placeholder.Start()
	if err != nil {
		return nil, err
	}
	close = func() {
		if err := p.Close(); err != nil {
			log.Warn("a placeholder is left a zombie", "scope", s.Unit(), "pid", p.Pid(), "error", err)
		}
	}
	err = s.Start(p.Pid(), r)
	if err == nil {
		err = failpoint.Hit("executor/worker/scope")
	}
	if err == nil && pin {
		err = s.Pin()
	}
	if err != nil {
		close()
		return nil, err
	}
	return close, nil
}

// countedIn are the cgroups that count what the kernel has killed in the container: the leaf of a scope may be gone already.
func (g Group) countedIn() map[string]string {
	if g.Scope != nil {
		return map[string]string{"": g.Scope.Dir()}
	}
	return g.Dirs
}

// Ended lets the cgroups of a container go of whose exit all is stored. Their parent may be removed before them, as kubelets do.
func (g Group) Ended() error {
	if g.Scope == nil {
		return nil
	}
	if err := g.Scope.Unpin(); err != nil {
		return err
	}
	g.Scope.Trim()
	return nil
}

// Stop removes what is left of the container's scope.
func (g Group) Stop() error {
	if g.Scope == nil {
		return nil
	}
	return g.Scope.Stop()
}

// Limits reads the values that an update may change, those of the scope, too, and the files that unified names.
func (g Group) Limits(unified map[string]string) (Limits, error) {
	all, err := readLimits(g.Dirs, unified)
	if err != nil {
		return nil, err
	}
	if s := g.Scope; s != nil {
		own, err := readLimits(map[string]string{"": s.Dir()}, unified)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, own)
	}
	return all, nil
}

// Set writes the values into the container's cgroups.
func (g Group) Set(r *cgroups.Resources) error {
	cm, err := manager.NewWithPaths(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, g.Dirs)
	if err != nil {
		return err
	}
	return Apply(cm, r)
}

// SetScope sets for the scope what an update has changed for the cgroups.
func (g Group) SetScope(r *cgroups.Resources) error {
	if g.Scope == nil {
		return nil
	}
	if err := g.Scope.Set(r); err != nil {
		return fmt.Errorf("scope %s: %w", g.Scope.Unit(), err)
	}
	return nil
}

// Restore writes back the values that Limits has read, and makes systemd know of it.
func (g Group) Restore(ctx context.Context, old Limits) error {
	if err := restoreLimits(old); err != nil {
		return err
	}
	s := g.Scope
	if s == nil {
		return nil
	}
	values := map[string]string{}
	for path, value := range old {
		if filepath.Dir(path) == s.Dir() {
			values[filepath.Base(path)] = value
		}
	}
	if err := s.Restore(ctx, values); err != nil {
		return fmt.Errorf("restore scope %s: %w", s.Unit(), err)
	}
	return nil
}
