//go:build cgo

package calls

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/systemd"
)

// layout is what a container is to be made of: all that is settled before anything of it exists.
type layout struct {
	rec       record.Record
	spec      *specs.Spec
	seccomp   json.RawMessage // its profile
	config    *configs.Config
	cgroups   cgroups.Manager // of cgroups that nothing is in
	scope     *systemd.Scope  // nil: its cgroup is no scope of systemd's
	hugepages []specs.LinuxHugepageLimit
}

// layOut reads the bundle and finds out what the host lets the container have. It changes nothing.
func (cs *Calls) layOut(req protocol.CreateRequest) (l layout, err error) {
	spec, seccomp, err := bundle.Load(req.Bundle)
	if err != nil {
		return l, err
	}
	cs.cfg.Specs.ClampProcess(req.ID, spec.Process)
	if l.scope, err = group.TakeScope(&spec.Linux.CgroupsPath); err != nil {
		return l, err
	}
	l.spec, l.seccomp, l.hugepages = spec, seccomp, cs.cfg.Hugepages.Take(spec.Linux.Resources)
	if l.config, err = cs.cfg.Specs.Config(req.ID, req.Bundle, spec, seccomp); err != nil {
		return l, err
	}
	if l.cgroups, err = cs.roots.Manager(l.config.Cgroups); err != nil {
		return l, fmt.Errorf("cgroup %s: %w", spec.Linux.CgroupsPath, err)
	}
	if err := group.Empty(l.cgroups); err != nil {
		return l, err
	}
	l.rec = record.Record{BootID: cs.cfg.BootID, ID: req.ID, Bundle: req.Bundle, LogPath: req.LogPath, LogMaxBytes: req.LogMaxBytes, LogMaxFiles: req.LogMaxFiles, Stdin: req.Stdin, StdinOnce: req.StdinOnce,
		Terminal: spec.Process.Terminal, Stage: record.StageCreating, Cgroups: l.cgroups.GetPaths(), Runtime: req.Runtime}
	if l.scope != nil {
		l.rec.Scope = l.scope.String()
	}
	return l, nil
}
