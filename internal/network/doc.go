// Package network is what the runtime asks of a network of sandboxes, in values: how one is connected, and what it has then. Package bridge is the built-in network, cni
// that of the host's plugins, and choice both.
package network
