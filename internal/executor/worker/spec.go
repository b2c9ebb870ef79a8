//go:build cgo

package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/systemd"
)

// loadSpec reads a bundle's config.json, and checks what libcontainer takes for granted. The seccomp profile is returned as it is
// written there, beside the rest.
func loadSpec(bundle string) (*specs.Spec, json.RawMessage, error) {
	path := filepath.Join(bundle, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	var read bundleSpec
	if err := json.Unmarshal(raw, &read); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errdefs.ErrInvalidArgument, path, err)
	}
	spec, seccomp := read.take()
	switch {
	case spec.Root == nil || spec.Root.Path == "":
		err = fmt.Errorf("root.path is missing")
	case spec.Linux == nil:
		err = fmt.Errorf("linux is missing")
	default:
		if err = checkCgroupsPath(spec.Linux.CgroupsPath); err != nil {
			err = fmt.Errorf("linux.cgroupsPath is %w", err)
		} else {
			err = checkProcess(spec.Process)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errdefs.ErrInvalidArgument, path, err)
	}
	if spec.Process.OOMScoreAdj == nil {
		spec.Process.OOMScoreAdj = new(int) // not the executor's own, which it would inherit
	}
	// libcontainer resolves relative paths against the working directory, which for runc is the bundle.
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(bundle, spec.Root.Path)
	}
	for i, m := range spec.Mounts {
		if isBind(m) && !filepath.IsAbs(m.Source) {
			spec.Mounts[i].Source = filepath.Join(bundle, m.Source)
		}
	}
	return spec, seccomp, nil
}

// checkCgroupsPath takes a path below the root, or a scope of systemd.
func checkCgroupsPath(path string) error {
	if filepath.IsAbs(path) && filepath.Clean(path) != "/" {
		return nil
	}
	if _, ok, err := systemd.ParseScope(path); err == nil && ok {
		return nil
	}
	return fmt.Errorf("%q, want an absolute path below the root, or a scope (SLICE:PREFIX:NAME)", path)
}

func isBind(m specs.Mount) bool {
	for _, o := range m.Options {
		if o == "bind" || o == "rbind" {
			return true
		}
	}
	return m.Type == "bind"
}

func checkProcess(p *specs.Process) error {
	switch {
	case p == nil:
		return fmt.Errorf("process is missing")
	case len(p.Args) == 0:
		return fmt.Errorf("process.args is empty")
	case !filepath.IsAbs(p.Cwd):
		return fmt.Errorf("process.cwd is %q, want an absolute path", p.Cwd)
	}
	return nil
}

// libcontainerConfig translates the specification, and its seccomp profile.
func (w *Worker) libcontainerConfig(id, bundle string, spec *specs.Spec, seccomp json.RawMessage) (*configs.Config, error) {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: id, Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if config.Seccomp, err = w.profiles.get(seccomp); err != nil {
		return nil, err
	}
	for i, l := range config.Labels {
		if strings.HasPrefix(l, "bundle=") {
			config.Labels[i] = "bundle=" + bundle // what hooks are told; it was our working directory
		}
	}
	return config, nil
}

// rlimits are the resources by their names in the specification.
var rlimits = map[string]int{
	"RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_STACK": unix.RLIMIT_STACK, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	"RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
}

// newProcess translates the specification of a process.
func newProcess(p *specs.Process) (*libcontainer.Process, error) {
	lp := &libcontainer.Process{
		Args: p.Args, Env: p.Env, Cwd: p.Cwd, UID: int(p.User.UID), GID: int(p.User.GID),
		Label: p.SelinuxLabel, AppArmorProfile: p.ApparmorProfile, NoNewPrivileges: &p.NoNewPrivileges,
		Scheduler: p.Scheduler, IOPriority: p.IOPriority,
	}
	if p.ConsoleSize != nil {
		lp.ConsoleWidth, lp.ConsoleHeight = uint16(p.ConsoleSize.Width), uint16(p.ConsoleSize.Height)
	}
	if c := p.Capabilities; c != nil {
		lp.Capabilities = &configs.Capabilities{Bounding: c.Bounding, Effective: c.Effective, Inheritable: c.Inheritable,
			Permitted: c.Permitted, Ambient: c.Ambient}
	}
	for _, gid := range p.User.AdditionalGids {
		lp.AdditionalGroups = append(lp.AdditionalGroups, int(gid))
	}
	for _, l := range p.Rlimits {
		n, ok := rlimits[l.Type]
		if !ok {
			return nil, fmt.Errorf("%w: process.rlimits: %q is not a resource", errdefs.ErrInvalidArgument, l.Type)
		}
		lp.Rlimits = append(lp.Rlimits, configs.Rlimit{Type: n, Hard: l.Hard, Soft: l.Soft})
	}
	aff, err := configs.ConvertCPUAffinity(p.ExecCPUAffinity)
	if err != nil {
		return nil, fmt.Errorf("%w: process.execCPUAffinity: %w", errdefs.ErrInvalidArgument, err)
	}
	lp.CPUAffinity = aff
	return lp, nil
}
