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
func (r *rooms) furnish(cfg Config, listener listener, cgroups *cgroup.Host, boot string) (err error) {
	r.folders = container.Folders{Layers: filepath.Join(cfg.DataDir, "containers"), Bundles: filepath.Join(cfg.RunDir, "containers")}
	r.sandboxFolders = sandbox.Folders{Root: filepath.Join(cfg.RunDir, "sandboxes")}
	r.bin = tree.NewBin(filepath.Join(r.folders.Layers, tree.BinName), cfg.Log)
	r.containers = container.OpenRecords(container.RecordsConfig{DB: cfg.DB, Folders: r.folders, Listener: listener, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	r.sandboxes = sandbox.OpenRecords(sandbox.RecordsConfig{DB: cfg.DB, Folders: r.sandboxFolders, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	if r.rootfs, err = rootfs.New(rootfs.Config{Folders: r.folders, Images: cfg.Images, Sandboxes: r.sandboxFolders, Host: r.host.Spec}); err != nil {
		return err
	}
	devices := cdi.New(cdi.Config{Dirs: cfg.CDISpecDirs, IgnoreAnnotations: cfg.IgnoreCDIAnnotations})
	lent := sandbox.NewLender(r.sandboxFolders, boot, cfg.Log)
	r.ends = end.New(end.Config{
		Containers: r.containers, Sandboxes: r.sandboxes, Folders: r.folders, Bin: r.bin, CDI: devices, Executor: cfg.Executor, Images: cfg.Images,
		Cgroups: cgroups, KillBound: cfg.KillBound, Log: cfg.Log,
	})
	r.sandboxLife, err = sandbox.NewManager(sandbox.Config{
		Records: r.sandboxes, Folders: r.sandboxFolders, Lent: lent, Containers: r.containers, Ends: r.ends, Listener: listener,
		CgroupParent: place.Pods{Root: cfg.CgroupRoot}.All(), Cgroups: cgroups, Systemd: cfg.CgroupDriver == systemd.Driver, BootID: boot, DB: cfg.DB,
		Network: cfg.Network, Executor: cfg.Executor, Host: r.host.Spec, PrivilegedPorts: cfg.PrivilegedPorts, Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	pids := pidns.New(pidns.Config{Containers: r.containers, Sandboxes: r.sandboxLife, Executor: cfg.Executor, Cgroups: cgroups, Folders: r.folders})
	specs := spec.New(spec.Config{
		Folders: r.folders, Host: r.host, RootFS: r.rootfs, CDI: devices, PIDs: pids, Sandboxes: r.sandboxFolders, Lent: lent, Log: cfg.Log,
	})
	r.life = life.New(life.Config{
		Containers: r.containers, Sandboxes: r.sandboxes, SandboxLife: r.sandboxLife, Ends: r.ends, Folders: r.folders, Bin: r.bin, RootFS: r.rootfs,
		Spec: specs, CDI: devices, PIDs: pids, Host: r.host, Executor: cfg.Executor, Images: cfg.Images, Cgroups: cgroups, DB: cfg.DB, BootID: boot,
		LogRotation: cfg.LogRotation, Log: cfg.Log,
	})
	return nil
}

// close takes away what the rooms themselves have on the host, where no sandbox and no container is left.
func (r *rooms) close() error {
	var errs []error
	if r.rootfs != nil && len(r.containers.All()) == 0 {
		errs = append(errs, r.rootfs.Close())
	}
	if r.sandboxLife != nil {
		errs = append(errs, r.sandboxLife.Close())
	}
	return errors.Join(errs...)
}
