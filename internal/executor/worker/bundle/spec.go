//go:build cgo

// Package bundle reads what a container is to be: its specification, checked, and lowered to what this host lets it have.
package bundle

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/ids"
)

// Load reads a bundle's config.json, and checks what libcontainer takes for granted. The seccomp profile is returned as it is
// written there, beside the rest.
func Load(bundle string) (*specs.Spec, json.RawMessage, error) {
	path := filepath.Join(bundle, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	var read Spec
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
		if err = CheckCgroupsPath(spec.Linux.CgroupsPath); err != nil {
			err = fmt.Errorf("linux.cgroupsPath is %w", err)
		} else {
			err = CheckProcess(spec.Process)
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

// CheckCgroupsPath takes a path below the root, or a scope of systemd.
func CheckCgroupsPath(path string) error {
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

func CheckProcess(p *specs.Process) error {
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

// Reader translates specifications into what this host lets a container have.
type Reader struct {
	host     hostLimits
	profiles profiles
	clamped  sync.Map // what has been logged of clamping, by kind
	log      *slog.Logger
}

// NewReader returns a reader for what this process may pass on.
func NewReader(log *slog.Logger) (*Reader, error) {
	host, err := readHostLimits()
	if err != nil {
		return nil, err
	}
	return &Reader{host: host, log: log}, nil
}

// Config translates the specification, and its seccomp profile.
func (r *Reader) Config(id ids.ContainerID, bundle string, spec *specs.Spec, seccomp json.RawMessage) (*configs.Config, error) {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: string(id), Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if config.Seccomp, err = r.profiles.get(seccomp); err != nil {
		return nil, err
	}
	ocicmd.TellBundle(config, bundle)
	return config, nil
}
