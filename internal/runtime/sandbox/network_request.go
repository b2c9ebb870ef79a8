package sandbox

import (
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/network"
)

// hostPorts returns the ports of the host that a configuration asks for. A port mapping whose host_port is 0 asks for none,
// and in the node's network a container's port is the node's already. What is set is checked all the same. It is pure.
func hostPorts(cfg *cri.PodSandboxConfig) ([]network.HostPort, error) {
	var ports []network.HostPort
	for i, p := range cfg.GetPortMappings() {
		bad := func(field string, value any, must string) error {
			return fmt.Errorf("port_mappings[%d].%s is %v; it must %s: %w", i, field, value, must, errdefs.ErrInvalidArgument)
		}
		name, ok := cri.Protocol_name[int32(p.GetProtocol())]
		var ip netip.Addr
		var err error
		if p.GetHostIp() != "" {
			ip, err = netip.ParseAddr(p.GetHostIp())
		}
		switch {
		case !ok:
			return nil, bad("protocol", p.GetProtocol(), "be TCP, UDP or SCTP")
		case p.GetHostPort() < 0 || p.GetHostPort() > 65535:
			return nil, bad("host_port", p.GetHostPort(), "be from 1 to 65535, or 0 for none")
		case p.GetContainerPort() < 0 || p.GetContainerPort() > 65535 || p.GetContainerPort() == 0 && p.GetHostPort() != 0:
			return nil, bad("container_port", p.GetContainerPort(), "be from 1 to 65535")
		case err != nil || ip.Zone() != "":
			return nil, bad("host_ip", fmt.Sprintf("%q", p.GetHostIp()), "be an IP address, or empty for all of the host's")
		case p.GetHostPort() == 0 || hostNetwork(cfg):
			continue
		}
		ports = append(ports, network.HostPort{Protocol: name, HostIP: ip, HostPort: uint16(p.GetHostPort()), ContainerPort: uint16(p.GetContainerPort())})
	}
	return ports, nil
}

// networkRequest is what the network is asked for a sandbox.
func (m *Manager) networkRequest(rec *Record) (network.Request, error) {
	cfg := rec.Config()
	ports, err := hostPorts(cfg)
	if err != nil {
		return network.Request{}, err
	}
	md := cfg.GetMetadata()
	req := network.Request{SandboxID: rec.ID, NetNS: m.cfg.Folders.Namespace(rec, ns.Network), HostPorts: ports, Annotations: cfg.GetAnnotations(), CgroupParent: rec.Cgroup,
		Pod: network.PodInfo{Namespace: md.GetNamespace(), Name: md.GetName(), UID: md.GetUid()}}
	if dns := cfg.GetDnsConfig(); dns != nil {
		req.DNS = &network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()}
	}
	return req, nil
}
