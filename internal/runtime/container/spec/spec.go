// Package spec makes the OCI specification of a container: it gathers what the container's configuration, its image, its sandbox and the host
// say, has package ocispec build of it what is pure, and writes it into the container's bundle.
package spec

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/cdi"
	"monopod.dev/monopod/internal/runtime/container/devnode"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
	"monopod.dev/monopod/internal/runtime/container/pidns"
	"monopod.dev/monopod/internal/runtime/container/rootfs"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Config is what a Maker works with.
type Config struct {
	Folders   container.Folders
	Host      hostfacts.Facts
	RootFS    *rootfs.Mounter
	CDI       *cdi.Injector
	PIDs      *pidns.Finder
	Sandboxes sandbox.Folders
	Lent      *sandbox.Lender
	Log       *slog.Logger
}

// Maker is safe for concurrent use.
type Maker struct {
	cfg Config

	toldMu sync.Mutex
	told   map[string]bool // what has been logged once
}

// New returns a Maker.
func New(cfg Config) *Maker { return &Maker{cfg: cfg, told: map[string]bool{}} }

// Write makes the specification of a container whose root file system is mounted, with what its mounts and devices show, and writes the
// bundle's config.json. What was made for a Write that fails goes with the container.
func (m *Maker) Write(ctx context.Context, rec *container.Record, sb *sandbox.Record, img store.Image, user ocispec.ResolvedUser) error {
	spec, err := m.specify(ctx, rec, sb, img, user)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	// The bundle belongs to this boot, and a crash before the record says "created" undoes it: no sync is needed.
	config := filepath.Join(m.cfg.Folders.Bundle(rec.ID), "config.json")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		return err
	}
	// Hooks look there for the container's root; createContainer's run as the pod's root, who is an ordinary user here, and passes the bundle by its group.
	if uid, gid := sb.HostRoot(); uid != 0 || gid != 0 {
		return private.GroupReads(config, gid)
	}
	return nil
}

// User looks the user up in the container's own passwd and group.
func (m *Maker) User(rec *container.Record, imageUser string) (ocispec.ResolvedUser, error) {
	passwd, err := rootfs.ReadFile(m.cfg.Folders.RootFS(rec.ID), "etc/passwd")
	if err != nil {
		return ocispec.ResolvedUser{}, err
	}
	group, err := rootfs.ReadFile(m.cfg.Folders.RootFS(rec.ID), "etc/group")
	if err != nil {
		return ocispec.ResolvedUser{}, err
	}
	return ocispec.ResolveUser(passwd, group, ocispec.UserSpecOf(rec.Config().GetLinux().GetSecurityContext(), imageUser))
}

// specify makes the OCI specification.
func (m *Maker) specify(ctx context.Context, rec *container.Record, sb *sandbox.Record, img store.Image, user ocispec.ResolvedUser) (*specs.Spec, error) {
	cfg := rec.Config()
	mounts, err := m.cfg.RootFS.Mounts(ctx, rec, sb)
	if err != nil {
		return nil, err
	}
	volumes, err := m.cfg.RootFS.Declared(ctx, rec, sb, img.Config.Volumes)
	if err != nil {
		return nil, err
	}
	devices, err := devnode.Resolve(cfg.GetDevices())
	if err != nil {
		return nil, err
	}
	host := m.cfg.Host.For(sb.Handler)
	if err := m.tellMissing(cfg.GetLinux().GetSecurityContext()); err != nil {
		return nil, err
	}
	if cfg.GetLinux().GetSecurityContext().GetPrivileged() {
		if host.Devices, err = devnode.All(); err != nil {
			return nil, err
		}
	}
	if apparmor, err := ocispec.AppArmorFor(cfg.GetLinux().GetSecurityContext(), host); err != nil {
		return nil, err
	} else if err := hostfacts.CheckProfile(apparmor); err != nil {
		return nil, err
	}
	kind, profile, err := ocispec.SeccompFor(cfg.GetLinux().GetSecurityContext())
	if err != nil {
		return nil, err
	}
	var loaded *specs.LinuxSeccomp
	if kind == ocispec.SeccompFile {
		if loaded, err = m.loadSeccomp(profile, cfg.GetLinux().GetSecurityContext()); err != nil {
			return nil, err
		}
	}
	files := m.cfg.Sandboxes.Files(sb)
	hostname := sb.Config().GetHostname()
	if hostname == "" {
		hostname = m.cfg.Host.Hostname
	}
	pid, hostPID, err := m.cfg.PIDs.Namespace(ctx, rec, sb)
	if err != nil {
		return nil, err
	}
	spec, err := ocispec.Build(ocispec.Input{
		// Whether the container may be privileged was judged when it was asked for.
		Sandbox: Promised(sb.Config(), cfg.GetLinux().GetSecurityContext().GetPrivileged()), Container: cfg, Image: img.Config, RootFS: m.cfg.Folders.RootFS(rec.ID), User: user, Hostname: hostname,
		Namespaces: ocispec.Namespaces{Network: m.cfg.Sandboxes.Namespace(sb, ns.Network), IPC: m.cfg.Sandboxes.Namespace(sb, ns.IPC),
			UTS: m.cfg.Sandboxes.Namespace(sb, ns.UTS), User: m.cfg.Sandboxes.Namespace(sb, ns.User), PID: pid, HostPID: hostPID},
		CgroupsPath: sb.AskFor(rec.ID), Mounts: mounts, Declared: volumes,
		Files:   ocispec.SandboxFiles{ResolvConf: files.ResolvConf, Hosts: files.Hosts, Hostname: files.Hostname, Shm: files.Shm},
		Devices: devices, Seccomp: loaded, SELinux: rec.SELinux, Host: host,
	})
	if err != nil {
		return nil, err
	}
	if kind == ocispec.SeccompDefault {
		// The profile depends on the capabilities that the specification ended up with.
		spec.Linux.Seccomp = withoutX32(seccomp.DefaultProfile(spec))
	}
	lent, err := m.cfg.Lent.Lent(sb)
	if err != nil {
		return nil, err
	}
	if err := m.cfg.CDI.Inject(spec, cfg, sb.Config(), lent); err != nil {
		return nil, err
	}
	if err := m.cfg.Lent.Lend(sb, cdi.NetDevices(spec)); err != nil {
		return nil, err
	}
	return spec, devnode.Give(m.cfg.Folders.Devices(rec.ID), rec.SELinux.Mount, sb.Config(), spec)
}

// tellMissing says once which capabilities containers are to have that this host cannot give.
func (m *Maker) tellMissing(sc *cri.LinuxContainerSecurityContext) error {
	_, missing, err := ocispec.Capabilities(sc, m.cfg.Host.Spec.Capabilities)
	if err != nil || len(missing) == 0 {
		return err
	}
	m.toldMu.Lock()
	defer m.toldMu.Unlock()
	if key := strings.Join(missing, " "); !m.told[key] {
		m.told[key] = true
		m.cfg.Log.Warn("this host cannot give capabilities that a container is to have; it goes without", "capabilities", missing)
	}
	return nil
}

// Promised is a sandbox's configuration that says privileged, if it is to. Nothing of the sandbox itself depends on it: the container's own
// configuration counts.
func Promised(cfg *cri.PodSandboxConfig, privileged bool) *cri.PodSandboxConfig {
	if sc := cfg.GetLinux().GetSecurityContext(); !privileged || sc == nil || sc.GetPrivileged() {
		return cfg
	}
	cfg = proto.CloneOf(cfg)
	cfg.Linux.SecurityContext.Privileged = true
	return cfg
}
