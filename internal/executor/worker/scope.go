//go:build cgo

package worker

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/placeholder"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// A container whose cgroup is asked for as SLICE:PREFIX:NAME gets a scope of systemd. All that this worker does to the container's cgroup
// it does to the leaf below that (see package systemd), in the same way as without a scope; here is what comes on top.

// takeScope replaces a scope by the path of its leaf, and returns it, or nil.
func takeScope(path *string) (*systemd.Scope, error) {
	s, ok, err := systemd.ParseScope(*path)
	if err != nil || !ok {
		return nil, err
	}
	*path = s.Leaf()
	return &s, nil
}

// scope is the container's, or nil.
func (r *record) scope() *systemd.Scope {
	if r.Scope == "" {
		return nil
	}
	s, ok, err := systemd.ParseScope(r.Scope)
	if err != nil || !ok {
		return nil
	}
	return &s
}

// openScope makes the scope of a container, if it has one. close is for when the container's process is in it, or will never be.
func (w *Worker) openScope(s *systemd.Scope, r *cgroups.Resources, pin bool) (close func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	p, err := placeholder.Start()
	if err != nil {
		return nil, err
	}
	close = func() {
		if err := p.Close(); err != nil {
			w.log.Warn("a placeholder is left a zombie", "scope", s.Unit(), "pid", p.Pid(), "error", err)
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
func countedIn(rec record) map[string]string {
	if s := rec.scope(); s != nil {
		return map[string]string{"": s.Dir()}
	}
	return rec.Cgroups
}

// scopeEnded lets the cgroups of a container go of whose exit all is stored. Its parent may be removed before it, as kubelets do.
func (w *Worker) scopeEnded(rec record) {
	s := rec.scope()
	if s == nil {
		return
	}
	if err := s.Unpin(); err != nil {
		w.log.Warn("the cgroup of a container that has ended stays until it is deleted", "container", rec.ID, "error", err)
		return
	}
	s.Trim()
}

// stopScope removes what is left of the container's scope.
func stopScope(rec record) error {
	if s := rec.scope(); s != nil {
		return s.Stop()
	}
	return nil
}

// limitsOf reads the values of a container that an update may change: those of its scope, too.
func limitsOf(rec record, change *specs.LinuxResources) (limits, error) {
	all, err := readLimits(rec.Cgroups, change.Unified)
	if err != nil {
		return nil, err
	}
	if s := rec.scope(); s != nil {
		own, err := readLimits(map[string]string{"": s.Dir()}, change.Unified)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, own)
	}
	return all, nil
}

// setScope sets what an update changes for the scope, too.
func setScope(rec record, r *cgroups.Resources) error {
	s := rec.scope()
	if s == nil {
		return nil
	}
	if err := s.Set(r); err != nil {
		return fmt.Errorf("scope %s: %w", s.Unit(), err)
	}
	return nil
}

// restore is restoreLimits, and makes systemd know of it.
func restore(ctx context.Context, rec record, old limits) error {
	if err := restoreLimits(old); err != nil {
		return err
	}
	s := rec.scope()
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
