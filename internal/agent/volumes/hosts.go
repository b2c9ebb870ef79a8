package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// nodeHosts is the node's own hosts file.
const nodeHosts = "/etc/hosts"

// hostsFile writes the pod's /etc/hosts. A running container has it mounted, so it is written in place.
func (m *Manager) hostsFile(in MountInput) (string, error) {
	dir := m.podDir(in.Pod.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "etc-hosts")
	content, err := m.hosts(in)
	if err != nil {
		return "", err
	}
	// Its containers may write there, as much as they like.
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(content)) {
		if old, err := os.ReadFile(path); err == nil && string(old) == content {
			return path, nil
		}
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o644)
}

// hosts is the content of the pod's hosts file: the node's own for a pod on its network.
func (m *Manager) hosts(in MountInput) (string, error) {
	if !in.Pod.Spec.HostNetwork {
		return ownHosts(in) + aliases(in.Pod.Spec.HostAliases), nil
	}
	of := m.cfg.HostsFile
	if of == "" {
		of = nodeHosts
	}
	node, err := os.ReadFile(of)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a host without one has none to hand on
		return "", fmt.Errorf("the node's hosts file: %w", err)
	}
	return "# Kubernetes-managed hosts file (host network).\n" + string(node) + aliases(in.Pod.Spec.HostAliases), nil
}

// ownHosts are the names of a pod on a network of its own.
func ownHosts(in MountInput) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	names := in.Hostname
	if in.Domain != "" {
		names = in.Hostname + "." + in.Domain + "\t" + in.Hostname
	}
	for _, ip := range in.PodIPs {
		b.WriteString(ip + "\t" + names + "\n")
	}
	return b.String()
}

func aliases(list []v1.HostAlias) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range list {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
	return b.String()
}
