// Package fsck proves that what the runtime has stored is whole, while no node works with it, and repairs it on request: its records,
// the folders of containers and sandboxes, their images and their addresses.
//
// What a start of the node finishes or undoes by itself, because that takes the executor or the network, is told and left to it.
// What runs is never touched.
package fsck
