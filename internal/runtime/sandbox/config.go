package sandbox

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/ocispec"
)

// Validate refuses by name what of a configuration this package applies and cannot honour. It touches nothing.
func Validate(cfg *cri.PodSandboxConfig) error {
	if dir := cfg.GetLogDirectory(); dir != "" && !filepath.IsAbs(dir) {
		return fmt.Errorf("log_directory %q is not an absolute path: %w", dir, errdefs.ErrInvalidArgument)
	}
	if _, err := hostPorts(cfg); err != nil {
		return err
	}
	if err := checkDNS(cfg.GetDnsConfig()); err != nil {
		return err
	}
	return ns.CheckSysctls(namespaces(cfg))
}

// checkDNS keeps each entry on its place in resolv.conf(5).
func checkDNS(dns *cri.DNSConfig) error {
	for _, s := range dns.GetServers() {
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Errorf("dns_config.servers: %q is not an IP address: %w", s, errdefs.ErrInvalidArgument)
		}
	}
	for field, list := range map[string][]string{"searches": dns.GetSearches(), "options": dns.GetOptions()} {
		for _, word := range list {
			if word == "" || strings.ContainsFunc(word, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
				return fmt.Errorf("dns_config.%s: %q is not one word: %w", field, word, errdefs.ErrInvalidArgument)
			}
		}
	}
	return nil
}

func hostNetwork(cfg *cri.PodSandboxConfig) bool {
	return cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE
}

func hostIPC(cfg *cri.PodSandboxConfig) bool {
	return cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetIpc() == cri.NamespaceMode_NODE
}

// unprivileged are the sysctls of a pod's network that its own do not set: programs without capabilities may listen on any port and send ICMP echo
// requests, for the ports and the addresses are the pod's alone. Images are made for that, as it is so with other runtimes.
var unprivileged = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"}

// namespaces are those that a sandbox gets of its own. One in the node's network has the node's name too; validation has refused
// a configuration that says otherwise.
func namespaces(cfg *cri.PodSandboxConfig) ns.Options {
	o := ns.Options{Network: !hostNetwork(cfg), IPC: !hostIPC(cfg), UTS: !hostNetwork(cfg), Sysctls: cfg.GetLinux().GetSysctls()}
	if o.UTS {
		o.Hostname = cfg.GetHostname()
	}
	if uid, gid, ok := ocispec.UserNamespace(cfg); ok {
		o.User = &ns.Mappings{UIDs: []ns.IDMap{idMap(uid)}, GIDs: []ns.IDMap{idMap(gid)}}
	}
	return o
}
