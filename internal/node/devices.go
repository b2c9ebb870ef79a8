package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/host/numa"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/state"
)

// devicesRole is the manager of devices with its ledger.
type devicesRole struct {
	*process
	manager *devices.Manager
	db      *state.DB
	// made are the folders that this process makes, of those that others use too.
	made []string
}

func (d *devicesRole) role() role {
	return role{
		name: "devices", open: d.open, close: d.close,
		run:    func(ctx context.Context) error { return d.manager.Run(ctx) },
		remove: func(context.Context) error { return removeUnused(d.made) },
	}
}

func (d *devicesRole) open(context.Context) (err error) {
	d.made = deviceFolders(&d.Config.Devices)
	if d.db, err = d.openState("agent.db"); err != nil {
		return err
	}
	cfg, err := devicesConfig(d.Options)
	if err != nil {
		return err
	}
	cfg.DB = d.db
	if cfg.Boot, err = proc.BootID(); err != nil {
		return err
	}
	d.manager, err = devices.New(cfg)
	return err
}

func (d *devicesRole) close() error {
	if d.db == nil {
		return nil
	}
	return d.db.Close()
}

// devicesConfig is the configuration of the role, without its ledger.
func devicesConfig(o Options) (devices.Config, error) {
	d := &o.Config.Devices
	cfg := devices.Config{
		Plugins: plugin.Config{Dir: d.PluginDir, RegistryDir: d.PluginRegistryDir, Grace: d.PluginGracePeriod.Duration},
		CDI:     cdi.Config{Dirs: d.CDISpecDirs, Allow: d.CDIAllow, Deny: d.CDIDeny, SharedNodes: slices.Concat(cdi.DefaultSharedNodes, d.CDISharedNodes)},
		Topology: topology.Config{
			Policy: topology.Policy(d.TopologyManagerPolicy), Scope: topology.Scope(d.TopologyManagerScope), Options: d.TopologyManagerPolicyOptions,
		},
		Log: o.Log.With("role", "devices"),
	}
	for _, s := range d.Sharing {
		cfg.CDI.Sharing = append(cfg.CDI.Sharing, cdi.Share{Devices: s.Devices, Count: int(s.Shares)})
	}
	if cfg.Topology.Policy == topology.None {
		return cfg, nil // the host's nodes make no difference
	}
	nodes, err := numa.Nodes()
	if err != nil {
		return cfg, fmt.Errorf("read the host's NUMA nodes, for topology manager policy %s: %w", cfg.Topology.Policy, err)
	}
	for _, n := range nodes {
		cfg.Topology.Nodes = append(cfg.Topology.Nodes, topology.Node{ID: n.ID, Distances: n.Distances})
	}
	return cfg, nil
}

// deviceFolders are the folders of the role devices that others use too, and that are not there yet: who starts makes them.
func deviceFolders(d *v1alpha1.Devices) (missing []string) {
	for _, dir := range []string{d.PluginDir, d.PluginRegistryDir, filepath.Dir(d.PodResourcesSocket)} {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !slices.Contains(missing, dir) {
			missing = append(missing, dir)
		}
	}
	return missing
}

// removeUnused removes folders as far as nobody has put anything into them.
func removeUnused(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
