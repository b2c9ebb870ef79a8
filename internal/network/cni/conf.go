package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// settleTime is how long a file with a fault is given to become whole.
const settleTime = 2 * time.Second

// extensions are those of the files that are configurations; .conflist holds a list of plugins, the others one.
var extensions = []string{".conf", ".conflist", ".json"}

// configuration is what the directory holds at one moment.
type configuration struct {
	dir string
	// list is that of the first valid file, and file its path; nil: there is none. It needs no other file.
	list *libcni.NetworkConfigList
	file string
	// faults are those of the other files, in the order of their names, and of the directory. Files after the chosen one are
	// not looked at, nor are those after one that may still be being written.
	faults []error
}

// present says that the directory holds a configuration, though it may be one that cannot be used.
func (c *configuration) present() bool { return c.list != nil || len(c.faults) > 0 }

// err says why there is no network, or is nil.
func (c *configuration) err() error {
	switch {
	case c.list != nil:
		return nil
	case len(c.faults) == 0:
		return fmt.Errorf("there is no CNI configuration in %s: a network add-on puts one there, a file that ends in %s",
			c.dir, strings.Join(extensions, ", "))
	}
	return fmt.Errorf("there is no valid CNI configuration in %s: %w", c.dir, errors.Join(c.faults...))
}

// same says that two configurations make the same network, or have the same faults.
func (c *configuration) same(other *configuration) bool {
	if c == nil || other == nil || (c.list == nil) != (other.list == nil) || c.file != other.file {
		return false
	}
	if c.list != nil && string(c.list.Bytes) != string(other.list.Bytes) {
		return false
	}
	return slices.EqualFunc(c.faults, other.faults, func(a, b error) bool { return a.Error() == b.Error() })
}

// readDir reads a configuration directory. One that is not there is empty.
func readDir(dir string) *configuration {
	c := &configuration{dir: dir}
	if dir == "" {
		return c
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.faults = append(c.faults, err)
	}
	for _, e := range entries {
		if !slices.Contains(extensions, filepath.Ext(e.Name())) || e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		list, err := readFile(path)
		if err == nil {
			c.list, c.file = list, path
			return c
		}
		if errors.Is(err, os.ErrNotExist) { // it has gone meanwhile
			continue
		}
		if beingWritten(path) {
			// The next file may be of another network, and a pod is on its network for its life.
			c.faults = append(c.faults, fmt.Errorf("%w (it was written a moment ago; if it stays so the next file is used)", err))
			return c
		}
		c.faults = append(c.faults, err)
	}
	return c
}

// beingWritten says that a file has changed so lately that more may come.
func beingWritten(path string) bool {
	st, err := os.Stat(path)
	if err != nil {
		return false
	}
	age := time.Since(st.ModTime())
	return age >= 0 && age < settleTime
}

// readFile reads a configuration, and whatever other files it refers to.
func readFile(path string) (*libcni.NetworkConfigList, error) {
	raw, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	list, err := parse(raw, filepath.Ext(path) == ".conflist", filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// readBounded reads a regular file of a bounded size: a pipe of that name must not hold the node.
func readBounded(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no regular file (%s)", path, st.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("%s: it has more than %d bytes", path, maxFile)
	}
	return raw, nil
}

// parse makes a list of what a file holds. dir is where a list's plugins may have files of their own.
func parse(raw []byte, isList bool, dir string) (*libcni.NetworkConfigList, error) {
	if len(raw) == 0 {
		return nil, errors.New("it is empty")
	}
	var list *libcni.NetworkConfigList
	if isList {
		var err error
		if list, err = libcni.NetworkConfFromBytes(raw); err != nil {
			return nil, err
		}
	} else {
		single, err := libcni.ConfFromBytes(raw)
		if err != nil {
			return nil, fmt.Errorf("%w (a list of plugins belongs into a file that ends in .conflist)", err)
		}
		if list, err = libcni.ConfListFromConf(single); err != nil {
			return nil, err
		}
		list.LoadOnlyInlinedPlugins = true
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("name %q: %w", list.Name, err)
	}
	if !list.LoadOnlyInlinedPlugins {
		more, err := libcni.NetworkPluginConfsFromFiles(dir, list.Name)
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, more...)
	}
	return selfContained(list)
}

// selfContained makes a list whose bytes hold all of it, so that they are enough for its DEL.
func selfContained(list *libcni.NetworkConfigList) (*libcni.NetworkConfigList, error) {
	if newer, err := version.GreaterThan(list.CNIVersion, version.Current()); err != nil {
		return nil, fmt.Errorf("cniVersion: %w", err)
	} else if newer {
		return nil, fmt.Errorf("cniVersion %q is newer than %s, the newest that is known here", list.CNIVersion, version.Current())
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("it has no plugins")
	}
	plugins := make([]json.RawMessage, len(list.Plugins))
	for i, p := range list.Plugins {
		if strings.ContainsRune(p.Network.Type, filepath.Separator) {
			return nil, fmt.Errorf("plugin type %q is not the name of a file", p.Network.Type)
		}
		plugins[i] = p.Bytes
	}
	all := map[string]any{"name": list.Name, "plugins": plugins, "disableCheck": list.DisableCheck, "disableGC": list.DisableGC,
		"loadOnlyInlinedPlugins": true}
	if list.CNIVersion != "" {
		all["cniVersion"] = list.CNIVersion
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(raw)
}

// capabilities are those that a plugin of the list has.
func capabilities(list *libcni.NetworkConfigList) map[string]bool {
	all := map[string]bool{}
	for _, p := range list.Plugins {
		for name, has := range p.Network.Capabilities {
			all[name] = all[name] || has
		}
	}
	return all
}

// atLeast says that a list speaks a version of the specification.
func atLeast(list *libcni.NetworkConfigList, v string) bool {
	ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, v)
	return err == nil && ok
}
