// Package userns chooses the IDs of the host that the user namespaces of pods map their own to (hostUsers: false, KEP-127).
//
// It guarantees that a range that it chooses overlaps none of those it is told of, and lies where systemd says that container managers take theirs
// from, beyond the subordinate IDs that useradd gives to people: root of a pod is nobody else, neither on the host nor in another pod. Nothing here touches
// the host: package volumes keeps which pod has which.
package userns
