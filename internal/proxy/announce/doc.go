// Package announce makes addresses of load balancers known on the networks that the host is in, so that machines of the same network find them without a router: each
// becomes the host's own on the interface whose network has it, and the kernel answers ARP (RFC 826) and neighbour discovery (RFC 4861) for it, also while nobody
// keeps it. Addresses of other networks are left to routers.
//
// It guarantees:
//   - an address that another machine answers for is not taken (RFC 5227 for IPv4, the kernel's own detection of duplicates for IPv6), and one that the host has
//     already is left alone; it is told whose it is, and tried again;
//   - before an address is the host's the guard (Config.Guard) knows of it, and until it is no more: nothing but services is reached there;
//   - no program of the host gets such an address as the source of its packets, unless it asks for it;
//   - what is about to be made is written down first (DIR/announced.json), so that it can be taken away after a crash in any line, and by Remove;
//   - the neighbours are told when an address has come to this host (gratuitous ARP, unsolicited neighbour advertisements), and when its interface is back;
//   - what somebody takes away is put back.
//
// It does not notice when another machine takes an address that is announced already.
package announce
