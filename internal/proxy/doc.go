// Package proxy is the role proxy: it leads packets for services to their endpoints, on one node.
//
// It watches the cluster's Services and EndpointSlices and the node's own Node, has package plan decide what is to be done with packets, and package table keep
// it in the kernel. It guarantees that the kernel has what the API says, from a few milliseconds after the API has told it, and that a change costs what the
// service that has changed has, and nothing while nothing changes. It keeps no state: a start takes from the kernel what is there.
//
// It knows the API by client-go and the host by nftables, so that upstream's kube-proxy can stand in its place, and it can stand beside anybody's API server.
package proxy
