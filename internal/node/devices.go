package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/host/numa"
)

// devices is the configuration of the role devices, without its ledger.
func (o *Options) devices() (devices.Config, error) {
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
func (o *Options) deviceFolders() (missing []string) {
	d := &o.Config.Devices
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
