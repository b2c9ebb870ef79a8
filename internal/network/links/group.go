package links

import (
	"crypto/sha256"
	"encoding/binary"
)

// Groups of interfaces. Those of all nodes begin with GroupOfNodes, by which nodes of one host know each other's.
const (
	GroupOfNodes     = 0x6d000000
	GroupOfNodesMask = 0xff000000
	// LeavingGroup are the ends that are about to be deleted, of whichever node of this host.
	LeavingGroup = 0x6d706f64
	// BridgeGroup are the bridges themselves, of all nodes of a host.
	BridgeGroup = 0x6d706272
)

// PortGroup is the interface group of the host's ends of a bridge's sandboxes.
func PortGroup(bridge string) uint32 {
	sum := sha256.Sum256([]byte("ports of " + bridge))
	group := GroupOfNodes | binary.BigEndian.Uint32(sum[:])>>8
	if group == LeavingGroup || group == BridgeGroup {
		group++
	}
	return group
}
