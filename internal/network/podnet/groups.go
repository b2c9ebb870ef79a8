package podnet

import (
	"crypto/sha256"
	"encoding/binary"
)

// Groups of interfaces. Those of all nodes of a host are GroupOfNodes under GroupOfNodesMask, by which nodes know each other's.
const (
	GroupOfNodes     = 0x6d000000
	GroupOfNodesMask = 0xff000000
	// LeavingGroup are the ends that are about to be deleted, of whichever node of this host.
	LeavingGroup = 0x6d706f64
	// BridgeGroup are the bridges themselves, of all nodes of a host.
	BridgeGroup = 0x6d706272
)

// OfNodes says whether a group is one of a node of this host, this one or another.
func OfNodes(group uint32) bool { return group&GroupOfNodesMask == GroupOfNodes }

// PortGroup is the interface group of the host's ends of the network's pods.
func (n Network) PortGroup() uint32 {
	sum := sha256.Sum256([]byte("ports of " + n.Name))
	group := GroupOfNodes | binary.BigEndian.Uint32(sum[:])>>8
	if group == LeavingGroup || group == BridgeGroup {
		group++
	}
	return group
}
