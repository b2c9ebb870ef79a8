package sandbox

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/network"
)

func TestHostPorts(t *testing.T) {
	node := &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}}}
	for name, c := range map[string]struct {
		port  *cri.PortMapping
		linux *cri.LinuxPodSandboxConfig
		want  []network.HostPort
		says  string
	}{
		"all addresses":    {port: &cri.PortMapping{ContainerPort: 80, HostPort: 8080}, want: []network.HostPort{{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}}},
		"one address":      {port: &cri.PortMapping{Protocol: cri.Protocol_UDP, ContainerPort: 53, HostPort: 65535, HostIp: "127.0.0.1"}, want: []network.HostPort{{Protocol: "UDP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 65535, ContainerPort: 53}}},
		"SCTP and IPv6":    {port: &cri.PortMapping{Protocol: cri.Protocol_SCTP, ContainerPort: 1, HostPort: 2, HostIp: "fd00::1"}, want: []network.HostPort{{Protocol: "SCTP", HostIP: netip.MustParseAddr("fd00::1"), HostPort: 2, ContainerPort: 1}}},
		"no host port":     {port: &cri.PortMapping{ContainerPort: 80, HostIp: "127.0.0.1"}},
		"no port at all":   {port: &cri.PortMapping{}},
		"node's network":   {port: &cri.PortMapping{ContainerPort: 80, HostPort: 80}, linux: node},
		"bad all the same": {port: &cri.PortMapping{ContainerPort: 80, HostPort: 80, HostIp: "x"}, linux: node, says: "host_ip"},
		"protocol":         {port: &cri.PortMapping{Protocol: 7, ContainerPort: 80, HostPort: 80}, says: "protocol"},
		"host port":        {port: &cri.PortMapping{ContainerPort: 80, HostPort: 65536}, says: "host_port is 65536"},
		"negative":         {port: &cri.PortMapping{ContainerPort: 80, HostPort: -1}, says: "host_port is -1"},
		"container port":   {port: &cri.PortMapping{ContainerPort: 0, HostPort: 80}, says: "container_port is 0"},
		"large":            {port: &cri.PortMapping{ContainerPort: 70000}, says: "container_port is 70000"},
		"address":          {port: &cri.PortMapping{ContainerPort: 80, HostPort: 80, HostIp: "localhost"}, says: `host_ip is "localhost"`},
		"zone":             {port: &cri.PortMapping{ContainerPort: 80, HostPort: 80, HostIp: "fe80::1%eth0"}, says: "host_ip"},
	} {
		got, err := hostPorts(&cri.PodSandboxConfig{PortMappings: []*cri.PortMapping{c.port}, Linux: c.linux})
		if c.says != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "port_mappings[0]") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
