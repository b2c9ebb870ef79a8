// Package network connects sandboxes to a bridge of this host: an IPv4 address out of a range, a veth pair, a default
// route, masquerading towards the outside. It does this in-process, over netlink; no plugin and no tool is executed.
//
// It guarantees:
//   - an address is on disk before it is used, belongs to exactly one sandbox, and is free again after Teardown; it is
//     handed out again only when all others of the range have been;
//   - every operation is idempotent, and repairs what it finds half done;
//   - Reconcile makes the ledger and the kernel agree, in both directions;
//   - Remove leaves nothing on the host.
//
// It changes of the host: the bridge and its ports, one nftables table, two marked rules in each foreign forward chain
// that drops by policy, and net.ipv4.ip_forward. What it changed is written down before it is changed.
//
// Network namespaces are reached through netlink sockets that are opened in them; no thread of the caller is moved.
package network
