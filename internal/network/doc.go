// Package network is what the runtime asks of a network of sandboxes: the interface, with what it promises, and its values. Package bridge is the built-in network, on lease (whose
// addresses and ports are), links (interfaces and routes in the kernel) and rules (nftables); cni is that of the host's plugins, and choice both.
package network
