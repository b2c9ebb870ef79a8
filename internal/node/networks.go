package node

import (
	"net/netip"
	"path/filepath"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/podnet"
)

// networksOf are the node's networks of pods by a configuration: the value that all roles are given which know pods' packets, or have something on the host that is called by a network.
func networksOf(c *v1alpha1.NodeConfiguration) podnet.Networks {
	pods := podnet.Network{Name: c.Network.Bridge}
	for _, cidr := range config.PodRanges(c.Network) {
		r, _ := netip.ParsePrefix(cidr) // what is no range, which Validate tells, is the zero Prefix, which the network refuses
		pods.Ranges = append(pods.Ranges, r)
	}
	return podnet.Networks{pods}
}

// networksAreAnothers says that what goes by the name of the node's networks is another node's.
func networksAreAnothers(c *v1alpha1.NodeConfiguration) bool {
	other, err := bridge.Another(networksOf(c).Mark(), filepath.Join(c.DataDir, "state", runtimeState))
	return err == nil && other != ""
}
