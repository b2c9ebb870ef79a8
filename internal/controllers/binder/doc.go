// Package binder gives pods a node.
//
// It watches pods and nodes through the Kubernetes API, as anybody could. For a pod that names no node and asks for the
// default scheduler it looks for a node where the pod fits (judges.go and choose.go, pure) and binds it there through
// pods/binding. When there is none, it says why, in the words of kube-scheduler: in the pod's condition PodScheduled and in
// an event FailedScheduling. The pod is looked at again when a node or a pod that it has to do with changes, so that a pod that asks for a device
// waits for it, and is bound in the moment that somebody offers the device. What is on nodes is not reckoned anew for each decision (book.go), and the end of a
// pod is looked at only for the sake of those whom it can help: with a thousand waiting it takes about a millisecond if that is nobody.
//
// Devices are given first come, first served: a node on which an older pod stands in line for a device is not given to a
// younger one that asks for the same resource. Pods that wait for devices say so as they do on a node (reason DevicesNotReady,
// condition monopod.dev/DevicesReady), and fail when their annotation monopod.dev/devices-deadline wants it. They wait
// unbound, because a bound pod would hold CPU, memory and a place that others could use, and would be tied to one of
// several nodes. Which devices are really free only the node knows: what the binder counts are requests, and a pod may have to
// wait once more on its node.
//
// Where a pod may run, its node selector and its required affinity to nodes say, its required affinity to other pods (affinity.go) and theirs to be without
// it, and how those like it are to be spread (spread.go); what it prefers decides between nodes that can have it (merit.go), and after that the number of
// pods that they have. What is said of other pods is said of domains, the nodes that have a label with one value, so all nodes are surveyed before the pod
// is fitted to one. A pod with scheduling gates is not looked at, and holds up nobody, until the last of them is taken away.
//
// What a pod's claims have to do with nodes, volumes.go says: where their volumes are, and where those could be had that they do not have yet. Such a pod gets its
// place first; then its volumes are bound (prebind.go acts, package errand says what comes next), and the pod after them, while others are decided about. A pod that names
// its node by itself is never bound, and gets volumes for its claims there (placed.go).
//
// It guarantees that two pods are never bound on the strength of the same free resource, as long as one binder runs.
// It does not preempt or move pods: what has come to be otherwise since a pod was bound is let be. It leaves pods of other schedulers alone.
package binder
