package bridge

import (
	"log/slog"

	"github.com/vishvananda/netns"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
)

// sandboxes connects sandboxes and disconnects them, each as its lease says: first the lease, then the interfaces, the rules and the ports. The operations on one come one
// after another.
type sandboxes struct {
	bridge   string // the name of the bridge
	ownPorts []network.OwnPort
	log      *slog.Logger
	hostNS   netns.NsHandle
	links    *links.Host
	ledger   *lease.Ledger
	rules    *rules.Rules
	guard    network.Guard
	places   *places
	flows    *flows
	leaving  *leaving
	locks    keyed.Lock[ids.SandboxID] // by sandbox
}

// open opens what is needed beside, in the network namespace of the calling thread.
func (s *sandboxes) open() (err error) {
	if s.flows, err = openFlows(s.links.Socket, s.log); err != nil {
		return err
	}
	if s.leaving, err = openLeaving(s, s.log); err != nil {
		s.flows.close()
	}
	return err
}

// close frees the addresses of sandboxes that have been torn down, without waiting for their interfaces any more, and gives the sockets back.
func (s *sandboxes) close() {
	s.leaving.close()
	s.flows.close()
}
