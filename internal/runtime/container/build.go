package container

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/kernel"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// build makes the container's root file system and its bundle, and completes the record.
func (m *Manager) build(ctx context.Context, rec *Record, sb *sandbox.Record, img store.Image, lower []string) error {
	if err := m.mountRootFS(rec.ID, lower, rec.SELinux.Mount, sb); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/container-create/mounted"); err != nil {
		return err
	}
	user, err := m.resolveUser(rec, img.Config.User)
	if err != nil {
		return err
	}
	rec.UID, rec.GID, rec.Groups = user.UID, user.GID, user.AdditionalGids
	spec, err := m.specify(ctx, rec, sb, img, user)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	// The bundle belongs to this boot, and a crash before the record says "created" undoes it: no sync is needed.
	config := filepath.Join(m.Bundle(rec.ID), "config.json")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		return err
	}
	// Hooks look there for the container's root; createContainer's run as the pod's root, who is an ordinary user here, and passes the bundle by its group.
	if uid, gid := sb.HostRoot(); uid != 0 || gid != 0 {
		return private.GroupReads(config, gid)
	}
	return nil
}

// mountRootFS mounts the image's layers with a writable layer of the container's own on top. label is that of all its files.
func (m *Manager) mountRootFS(id string, lower []string, label string, sb *sandbox.Record) error {
	upper, work := filepath.Join(m.layer(id), "upper"), filepath.Join(m.layer(id), "work")
	for _, dir := range []string{upper, work, m.rootfs(id)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// The upper directory's mode is that of the container's root. What the container makes of it and in it is its own: the directories
	// above are closed.
	if err := os.Chmod(upper, 0o755); err != nil {
		return err
	}
	if uid, gid := sb.HostRoot(); uid != 0 || gid != 0 {
		if err := os.Chown(upper, int(uid), int(gid)); err != nil {
			return err
		}
		// The pod's root, who is an ordinary user here, mounts the root file system by its path. (What else it mounts is opened for it.)
		if err := private.Group(m.Bundle(id), gid); err != nil {
			return err
		}
	}
	if len(lower) == 0 { // an image without layers
		empty := filepath.Join(m.layer(id), "empty")
		if err := os.MkdirAll(empty, 0o755); err != nil {
			return err
		}
		lower = []string{empty}
	}
	return m.overlay(overlay{id: id, target: m.rootfs(id), lower: lower, upper: upper, work: work, label: label}, sb, nil)
}

// resolveUser looks the user up in the container's own passwd and group.
func (m *Manager) resolveUser(rec *Record, imageUser string) (ocispec.ResolvedUser, error) {
	passwd, err := readIn(m.rootfs(rec.ID), "etc/passwd")
	if err != nil {
		return ocispec.ResolvedUser{}, err
	}
	group, err := readIn(m.rootfs(rec.ID), "etc/group")
	if err != nil {
		return ocispec.ResolvedUser{}, err
	}
	return ocispec.ResolveUser(passwd, group, ocispec.UserSpecOf(rec.Config().GetLinux().GetSecurityContext(), imageUser))
}

// specify makes the OCI specification.
func (m *Manager) specify(ctx context.Context, rec *Record, sb *sandbox.Record, img store.Image, user ocispec.ResolvedUser) (*specs.Spec, error) {
	cfg := rec.Config()
	mounts, err := m.resolveMounts(ctx, rec, sb)
	if err != nil {
		return nil, err
	}
	volumes, err := m.declaredVolumes(ctx, rec, sb, img.Config.Volumes)
	if err != nil {
		return nil, err
	}
	devices, err := resolveDevices(cfg.GetDevices())
	if err != nil {
		return nil, err
	}
	host := m.HostOf(sb.Handler)
	if err := m.tellMissing(cfg.GetLinux().GetSecurityContext()); err != nil {
		return nil, err
	}
	if cfg.GetLinux().GetSecurityContext().GetPrivileged() {
		if host.Devices, err = allDevices(); err != nil {
			return nil, err
		}
	}
	if apparmor, err := ocispec.AppArmorFor(cfg.GetLinux().GetSecurityContext(), host); err != nil {
		return nil, err
	} else if err := checkProfile(apparmor); err != nil {
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
	files := m.sandboxes.Files(sb)
	hostname := sb.Config().GetHostname()
	if hostname == "" {
		hostname = m.cfg.Host.Hostname
	}
	pid, hostPID, err := m.pidNamespace(ctx, rec, sb)
	if err != nil {
		return nil, err
	}
	spec, err := ocispec.Build(ocispec.Input{
		// Whether the container may be privileged was judged when it was asked for.
		Sandbox: promised(sb.Config(), cfg.GetLinux().GetSecurityContext().GetPrivileged()), Container: cfg, Image: img.Config, RootFS: m.rootfs(rec.ID), User: user, Hostname: hostname,
		Namespaces: ocispec.Namespaces{Network: m.sandboxes.Namespace(sb, ns.Network), IPC: m.sandboxes.Namespace(sb, ns.IPC),
			UTS: m.sandboxes.Namespace(sb, ns.UTS), User: m.sandboxes.Namespace(sb, ns.User), PID: pid, HostPID: hostPID},
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
	lent, err := m.sandboxes.Lent(sb)
	if err != nil {
		return nil, err
	}
	if err := m.injectCDI(spec, cfg, sb.Config(), lent); err != nil {
		return nil, err
	}
	if err := m.sandboxes.Lend(sb, netDevices(spec)); err != nil {
		return nil, err
	}
	return spec, m.giveDevices(rec, sb, spec)
}

// tellMissing says once which capabilities containers are to have that this host cannot give.
func (m *Manager) tellMissing(sc *cri.LinuxContainerSecurityContext) error {
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

// withoutX32 takes the x32 ABI out of a profile. Hardly a kernel has it switched on, nobody builds images for it, and the filter is
// made anew at each start of a container and of each command in it: a third ABI costs about 8 ms every time. Its calls
// are denied, as those of any ABI that a filter does not name.
func withoutX32(profile *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	if profile != nil {
		profile.Architectures = slices.DeleteFunc(profile.Architectures, func(a specs.Arch) bool { return a == specs.ArchX32 })
	}
	return profile
}

// maxSeccompFile bounds a seccomp profile, in bytes.
const maxSeccompFile = 4 << 20

func (m *Manager) loadSeccomp(path string, sc *cri.LinuxContainerSecurityContext) (*specs.LinuxSeccomp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a named pipe must not hold the creation up
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref): %w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s is no regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSeccompFile))
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s: %w", path, err)
	}
	caps, _, err := ocispec.Capabilities(sc, m.cfg.Host.Spec.Capabilities)
	if err != nil {
		return nil, err
	}
	runs, err := kernel.Release()
	if err != nil {
		return nil, err
	}
	profile, err := ocispec.LoadSeccomp(raw, ocispec.SeccompFacts{
		Arch: runtime.GOARCH, Kernel: runs, Capabilities: caps.Bounding,
	})
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s: %w", path, err)
	}
	return profile, nil
}

// imageRef is the reference by which clients know an image: a digest of a repository, else its id.
func imageRef(img store.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return img.ID
}

// stopSignal is the signal of CRI's stop_signal, else the image's STOPSIGNAL, else SIGTERM. wrong says of the image's that it is none, which is no
// reason not to run it.
func stopSignal(cfg *cri.ContainerConfig, imageSignal string) (n int, wrong, err error) {
	name, asked := imageSignal, false
	if s := cfg.GetStopSignal(); s != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name, asked = strings.TrimPrefix(s.String(), "SIGNAL_"), true
	}
	n, err = parseSignal(strings.TrimSpace(name))
	switch {
	case err == nil:
		return n, nil, nil
	case !asked:
		return int(unix.SIGTERM), err, nil
	}
	return 0, nil, fmt.Errorf("stop signal %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
}
