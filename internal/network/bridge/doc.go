// Package bridge is the built-in network of a host: a sandbox gets an address out of an IPv4 range, an IPv6 range or both, a
// veth pair by which the host routes to it, default routes, ports of the host, masquerading towards the outside. The bridge itself has the host's addresses. It does this in-process, over netlink;
// no plugin and no tool is executed.
//
// It guarantees:
//   - an address or a host port is on disk before it is used, and belongs to exactly one sandbox. A port is free again
//     after Teardown, an address when its interface is gone; it is handed out again only when all others of the range have
//     been;
//   - every operation is idempotent, and repairs what it finds half done;
//   - Reconcile makes the ledger and the kernel agree, in both directions;
//   - Status repairs what others have taken away;
//   - Remove leaves nothing on the host.
//
// It changes of the host: the bridge, the pairs and their routes, one nftables table (package rules), two marked rules in each foreign forward chain
// that refuses what it does not know, and forwarding (with accept_ra of interfaces that live by it). What it changed is
// written down before it is changed. docs/NETWORK.md is the operator's view of it.
//
// Two types share the work: host is what there is on the host for all sandboxes together, sandboxes connects them one by one. Both are told by the ledger (package lease) what is to be, and
// make it by packages links and rules.
package bridge
