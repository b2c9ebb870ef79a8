package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/host/cgroup"
)

// Several nodes, or roles of them, may be on one host, and things that have a name of their own there can be another's: what ends removes only what this
// node has made, which lasting marks tell. The bridge says whose it is in its alias, a kubeconfig by the certificate in it, folders by a list in the data
// directory, and a cgroup is in use by the executor that is in it.

// foldersFile lists, a line each, the folders outside of the node's directories that were not there before it.
func foldersFile(c *v1alpha1.NodeConfiguration) string { return filepath.Join(c.DataDir, "folders") }

// noteFolders writes down which folders that these parts write to are still to be made: those of the logs, and that of the kubeconfig. Who starts makes them.
func noteFolders(c *v1alpha1.NodeConfiguration, parts []part) error {
	var dirs []string
	if slices.Contains(parts, partRuntime) || slices.Contains(parts, partAgent) {
		dirs = append(dirs, c.Agent.PodLogsDir, c.Agent.ContainerLogsDir)
	}
	if path := c.APIServer.Kubeconfig; path != "" && slices.Contains(parts, partAPIServer) {
		dirs = append(dirs, filepath.Dir(path))
	}
	known, err := ownFolders(c)
	if err != nil {
		return err
	}
	all := slices.Clone(known)
	for _, dir := range dirs {
		if dir == "" || slices.Contains(all, filepath.Clean(dir)) {
			continue
		}
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			all = append(all, filepath.Clean(dir))
		}
	}
	if len(all) == len(known) {
		return nil
	}
	// A list that a crash has cut leaves empty folders behind, no more.
	return os.WriteFile(foldersFile(c), []byte(strings.Join(all, "\n")+"\n"), 0o600)
}

func ownFolders(c *v1alpha1.NodeConfiguration) ([]string, error) {
	raw, err := os.ReadFile(foldersFile(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(strings.Split(string(raw), "\n"), func(dir string) bool { return !filepath.IsAbs(dir) }), err
}

// removeKubeconfig removes the administrator's kubeconfig that the API server of this node has written. It is called before the data directory goes, which
// has the proof.
func removeKubeconfig(c *v1alpha1.NodeConfiguration) error {
	path := c.APIServer.Kubeconfig
	own, err := apiserver.OwnsKubeconfig(c.DataDir, path)
	if err != nil || !own {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// newKubeconfig refuses to have an ephemeral node write its kubeconfig, which goes at the end, where another is.
func newKubeconfig(c *v1alpha1.NodeConfiguration) error {
	path := c.APIServer.Kubeconfig
	if path == "" {
		return nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("--ephemeral removes its kubeconfig at the end, but there is one at %s already, perhaps of another node: name a new file with --write-kubeconfig", path)
}

// servesAnothers says that the tables of services are another node's: no proxy has run with this data directory.
func servesAnothers(c *v1alpha1.NodeConfiguration) bool {
	if _, err := os.Lstat(proxyDir(c)); err == nil {
		return false
	}
	return networksAreAnothers(c)
}

// removeCgroups removes the node's cgroups in every hierarchy, which nobody else uses.
func removeCgroups(o Options) error {
	c := o.Config
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	pids, err := host.Processes(filepath.Join(c.CgroupRoot, "executor"))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if dir := keeperDir(pid); dir != "" && dir != executorDir(c) {
			o.Log.Info("cgroups are left to another node whose pods are in them", "cgroup", c.CgroupRoot, "executor", dir)
			return nil
		}
	}
	return host.RemoveTree(c.CgroupRoot)
}

// keeperDir is the directory of the executor that a process is the keeper of; empty: it is none.
func keeperDir(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return "" // it has ended
	}
	return dirArgument(raw)
}

func dirArgument(cmdline []byte) string {
	words := bytes.Split(cmdline, []byte{0})
	if i := slices.IndexFunc(words, func(w []byte) bool { return string(w) == "--dir" }); i >= 0 && i+1 < len(words) {
		return string(words[i+1])
	}
	return ""
}
