package sandbox

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/ns"
)

// Validate refuses by name what of a configuration this package applies and cannot honour. It touches nothing.
func Validate(cfg *cri.PodSandboxConfig) error {
	if dir := cfg.GetLogDirectory(); dir != "" && !filepath.IsAbs(dir) {
		return fmt.Errorf("log_directory %q is not an absolute path: %w", dir, errdefs.ErrInvalidArgument)
	}
	for _, p := range cfg.GetPortMappings() {
		// In the node's network a container's port is the node's.
		if p.GetHostPort() != 0 && !hostNetwork(cfg) {
			return fmt.Errorf("port_mappings: host_port %d: ports of the host are not mapped yet; use the node's network, or the pod's address: %w",
				p.GetHostPort(), errdefs.ErrNotImplemented)
		}
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

// namespaces are those that a sandbox gets of its own. One in the node's network has the node's name too, whatever its
// configuration says; the name that it gives is in the containers' $HOSTNAME and /etc/hostname only.
func namespaces(cfg *cri.PodSandboxConfig) ns.Options {
	o := ns.Options{Network: !hostNetwork(cfg), IPC: !hostIPC(cfg), UTS: !hostNetwork(cfg), Sysctls: cfg.GetLinux().GetSysctls()}
	if o.UTS {
		o.Hostname = cfg.GetHostname()
	}
	return o
}

// limits are what a pod's cgroup is limited to: the sum of its containers' resources and of its overhead. What has no limit in
// resources has none at all.
func limits(linux *cri.LinuxPodSandboxConfig) cgroup.Resources {
	r, over := linux.GetResources(), linux.GetOverhead()
	var out cgroup.Resources
	if shares := r.GetCpuShares(); shares > 0 {
		out.CPUShares = new(uint64(shares + over.GetCpuShares()))
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		period := r.GetCpuPeriod()
		if extra := over.GetCpuQuota(); quota > 0 && extra > 0 {
			// The overhead may be counted in another period.
			if p := over.GetCpuPeriod(); p > 0 && period > 0 {
				extra = extra * period / p
			}
			quota += extra
		}
		out.CPUQuota = new(quota)
		if period > 0 {
			out.CPUPeriod = new(uint64(period))
		}
	}
	if memory := r.GetMemoryLimitInBytes(); memory != 0 {
		if memory > 0 {
			memory += over.GetMemoryLimitInBytes()
		}
		out.MemoryLimit = new(memory)
	}
	return out
}
