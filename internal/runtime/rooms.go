package runtime

import (
	"errors"
	"path/filepath"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/cdi"
	"monopod.dev/monopod/internal/runtime/container/end"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/runtime/container/pidns"
	"monopod.dev/monopod/internal/runtime/container/rootfs"
	"monopod.dev/monopod/internal/runtime/container/spec"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// rooms are the parts of the runtime that do its work, each made of those before it.
type rooms struct {
	host hostfacts.Facts

	// What is known of sandboxes and containers, and where their files are.
	sandboxes      *sandbox.Records
	sandboxFolders sandbox.Folders
	containers     *container.Records
	folders        container.Folders
	bin            *tree.Bin // layers of containers that are gone

	// How they are made, and how they end.
	rootfs      *rootfs.Mounter
	ends        *end.Ender
	sandboxLife *sandbox.Manager
	life        *life.Manager
}

// listener hears of what happens in the rooms.
type listener interface {
	sandbox.Listener
	container.Listener
}

// furnish makes all rooms but host, which is there. It reads what is stored, and makes directories and the mounts that hold those of sandboxes
// and containers apart. After an error close gives back what was made.
func (s *rooms) furnish(cfg Config, listener listener, cgroups *cgroup.Host, boot string) (err error) {
	s.folders = container.Folders{Layers: filepath.Join(cfg.DataDir, "containers"), Bundles: filepath.Join(cfg.RunDir, "containers")}
	s.sandboxFolders = sandbox.Folders{Root: filepath.Join(cfg.RunDir, "sandboxes")}
	s.bin = tree.NewBin(filepath.Join(s.folders.Layers, tree.BinName), cfg.Log)
	s.containers = container.OpenRecords(container.RecordsConfig{DB: cfg.DB, Folders: s.folders, Listener: listener, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	s.sandboxes = sandbox.OpenRecords(sandbox.RecordsConfig{DB: cfg.DB, Folders: s.sandboxFolders, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	if s.rootfs, err = rootfs.New(rootfs.Config{Folders: s.folders, Images: cfg.Images, Sandboxes: s.sandboxFolders, Host: s.host.Spec}); err != nil {
		return err
	}
	devices := cdi.New(cdi.Config{Dirs: cfg.CDISpecDirs, IgnoreAnnotations: cfg.IgnoreCDIAnnotations})
	lent := sandbox.NewLender(s.sandboxFolders, boot, cfg.Log)
	s.ends = end.New(end.Config{
		Containers: s.containers, Sandboxes: s.sandboxes, Folders: s.folders, Bin: s.bin, CDI: devices, Executor: cfg.Executor, Images: cfg.Images,
		Cgroups: cgroups, KillBound: cfg.KillBound, Log: cfg.Log,
	})
	s.sandboxLife, err = sandbox.NewManager(sandbox.Config{
		Records: s.sandboxes, Folders: s.sandboxFolders, Lent: lent, Containers: s.containers, Ends: s.ends, Listener: listener,
		CgroupParent: place.Pods{Root: cfg.CgroupRoot}.All(), Cgroups: cgroups, Systemd: cfg.CgroupDriver == systemd.Driver, BootID: boot, DB: cfg.DB,
		Network: cfg.Network, Executor: cfg.Executor, Host: s.host.Spec, PrivilegedPorts: cfg.PrivilegedPorts, Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	pids := pidns.New(pidns.Config{Containers: s.containers, Sandboxes: s.sandboxLife, Executor: cfg.Executor, Cgroups: cgroups, Folders: s.folders})
	specs := spec.New(spec.Config{
		Folders: s.folders, Host: s.host, RootFS: s.rootfs, CDI: devices, PIDs: pids, Sandboxes: s.sandboxFolders, Lent: lent, Log: cfg.Log,
	})
	s.life = life.New(life.Config{
		Containers: s.containers, Sandboxes: s.sandboxes, SandboxLife: s.sandboxLife, Ends: s.ends, Folders: s.folders, Bin: s.bin, RootFS: s.rootfs,
		Spec: specs, CDI: devices, PIDs: pids, Host: s.host, Executor: cfg.Executor, Images: cfg.Images, Cgroups: cgroups, DB: cfg.DB, BootID: boot,
		LogRotation: cfg.LogRotation, Log: cfg.Log,
	})
	return nil
}

// close takes away what the rooms themselves have on the host, where no sandbox and no container is left.
func (s *rooms) close() error {
	var errs []error
	if s.rootfs != nil && len(s.containers.All()) == 0 {
		errs = append(errs, s.rootfs.Close())
	}
	if s.sandboxLife != nil {
		errs = append(errs, s.sandboxLife.Close())
	}
	return errors.Join(errs...)
}
