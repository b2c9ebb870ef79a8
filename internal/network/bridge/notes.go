package bridge

import (
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/state"
)

// hostNote is written down before the host is changed, by the bridge's name in the table "network-host".
type hostNote struct {
	// Bridge: this node makes the bridge.
	Bridge bool `json:"bridge"`
	// IPForward: net.ipv4.ip_forward was 0, and this node sets it to 1. IP6Forward: the same for IPv6.
	IPForward  bool `json:"ipForward,omitempty"`
	IP6Forward bool `json:"ip6Forward,omitempty"`
	// Boot is the boot of the host that forwarding and AcceptRA are about. After another one they say nothing: what is on then is somebody
	// else's doing.
	Boot string `json:"boot,omitempty"`
	// AcceptRA are the interfaces whose net.ipv6.conf.*.accept_ra was 1, and this node sets it to 2.
	AcceptRA []string `json:"acceptRA,omitempty"`
	// Updated are the pod ranges that UpdatePodCIDR has set. They hold as long as the configuration says Configured.
	Updated    []netip.Prefix `json:"updated,omitempty"`
	Configured []netip.Prefix `json:"configured,omitempty"`
}

// notes keep the note of one bridge. Who changes it holds host.mu.
type notes struct {
	table  state.Table[hostNote]
	bridge string
}

func openNotes(db *state.DB, bridge string) *notes {
	return &notes{table: state.NewTable[hostNote](db, "network-host"), bridge: bridge}
}

// get is the note, which is empty where none was written.
func (n *notes) get() (hostNote, error) {
	note, err := n.table.Get(n.bridge)
	if err != nil && !errdefs.IsNotFound(err) {
		return note, fmt.Errorf("network: %w", err)
	}
	return note, nil
}

// change writes down what f makes of the note; f says whether there is anything to write.
func (n *notes) change(f func(*hostNote) bool) error {
	note, err := n.get()
	if err != nil || !f(&note) {
		return err
	}
	if err := n.table.Put(n.bridge, note); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

// forget takes the note away.
func (n *notes) forget() error {
	if err := n.table.Delete(n.bridge); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}
