// Package daemonset is the controller of daemon sets: one pod on each node that the template fits, and a new one in its place, or beside it for a while, when the
// template is another one.
//
// A pod names its node in a required node affinity, by which the binder binds it, so that what else keeps a pod from a node (resources, ports) is asked there.
// It tolerates the taints of nodes that are not as they should be.
//
// What is to be done follows from the set, its pods, its revisions and the nodes alone (Decide), and while the caches do not show all that was written for a set
// nothing is decided. How often pods have failed on a node lately is all that is known here and nowhere else: a controller that begins anew has no patience to
// keep.
//
// It is upstream's in what it does, in its labels, status, reasons and events; so either can take over what the other one has begun. Of two revisions of one
// template, which are there where controllers ran at the same time, it counts the pods of both as updated, and forgets the one that has none.
package daemonset
