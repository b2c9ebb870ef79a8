package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/kit/ids"
)

// attachment is a sandbox that is connected, or that may be: what its DEL and its CHECK need. It is stored (table
// "network-cni", JSON, by the sandbox's id) before its ADD, and forgotten after its DEL.
//
//	(none) --Setup--> adding --> connected --Teardown--> (none)
//	                    |                                  ^
//	                    +-- ADD fails, or a crash: DEL ----+
//
// adding: Result is empty.
type attachment struct {
	// Network is the name in the configuration, and File where that was read.
	Network string `json:"network"`
	File    string `json:"file"`
	// Config is the list of the plugins; it needs no other file.
	Config    json.RawMessage            `json:"config"`
	NetNS     string                     `json:"netns"`
	Interface string                     `json:"interface"`
	Args      [][2]string                `json:"args"`
	Runtime   map[string]json.RawMessage `json:"runtimeConfig,omitempty"`
	// Result is what the plugins have answered to ADD, as they have.
	Result json.RawMessage `json:"result,omitempty"`
}

// connected says that the ADD has succeeded.
func (a *attachment) connected() bool { return len(a.Result) > 0 }

// list is the attachment's configuration.
func (a *attachment) list() (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		return nil, fmt.Errorf("the stored configuration of the CNI network %q (%s): %w", a.Network, a.File, err)
	}
	return list, nil
}

// arguments are those of libcni for every command on the attachment.
func (a *attachment) arguments(sandboxID ids.SandboxID, netns string) *libcni.RuntimeConf {
	caps := map[string]any{}
	for name, raw := range a.Runtime {
		caps[name] = raw
	}
	return &libcni.RuntimeConf{ContainerID: string(sandboxID), NetNS: netns, IfName: a.Interface, Args: a.Args, CapabilityArgs: caps}
}

// cached is libcni's own file of an attachment (kind cniCacheV1), from which it takes the result for DEL and CHECK. The
// table is the law: the file is written from it. It lies in the run directory, and is what an attachment is known by when the
// table is lost.
type cached struct {
	Kind           string                     `json:"kind"`
	ContainerID    string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	NetworkName    string                     `json:"networkName"`
	NetNS          string                     `json:"netns,omitempty"`
	CniArgs        [][2]string                `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	RawResult      json.RawMessage            `json:"result,omitempty"`
}

func (n *Network) cacheDir() string { return filepath.Join(n.cfg.CacheDir, "results") }

func (n *Network) cachePath(id ids.SandboxID, a *attachment) string {
	return filepath.Join(n.cacheDir(), fmt.Sprintf("%s-%s-%s", a.Network, id, a.Interface))
}

// writeCache makes libcni's file say what the record says.
func (n *Network) writeCache(id ids.SandboxID, a *attachment) error {
	if !a.connected() {
		return n.dropCache(id, a)
	}
	raw, err := json.Marshal(cached{Kind: libcni.CNICacheV1, ContainerID: string(id), Config: a.Config, IfName: a.Interface, NetworkName: a.Network,
		NetNS: a.NetNS, CniArgs: a.Args, CapabilityArgs: a.Runtime, RawResult: a.Result})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.cacheDir(), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(n.cachePath(id, a), raw, 0o600)
}

func (n *Network) dropCache(id ids.SandboxID, a *attachment) error {
	if err := os.Remove(n.cachePath(id, a)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// readCache returns the attachments of libcni's files, by sandbox. A file that cannot be read is in the error.
func (n *Network) readCache() (map[string]attachment, error) {
	found := map[string]attachment{}
	entries, err := os.ReadDir(n.cacheDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return found, err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(n.cacheDir(), e.Name())
		raw, err := readBounded(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var c cached
		if err := json.Unmarshal(raw, &c); err != nil || c.Kind != libcni.CNICacheV1 || c.ContainerID == "" {
			errs = append(errs, fmt.Errorf("%s is no cached attachment: %w", path, err))
			continue
		}
		found[c.ContainerID] = attachment{Network: c.NetworkName, File: path, Config: c.Config, NetNS: c.NetNS, Interface: c.IfName,
			Args: c.CniArgs, Runtime: c.CapabilityArgs, Result: c.RawResult}
	}
	return found, errors.Join(errs...)
}
