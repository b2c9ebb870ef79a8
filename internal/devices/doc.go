// Package devices is the role that knows the host's devices, counts them as extended resources, and grants them to
// pods.
//
// Where devices come from is a source.Source: CDI specs are one (package cdi), device plugins another (package plugin). Who has what, who waits, and what is decided
// about those who ask is package book's, purely. Here the Manager asks the sources, and the clerk writes what is decided into the ledger, a table of the state
// database, before he notes it in the book and tells those whom it concerns.
//
// A grant belongs to a pod and its containers, and it lasts as long as the pod. It guarantees:
//   - a pod has the devices of all its containers or none, and those that wait for the same devices get them in the order of their creation;
//   - a grant is on disk before it is used, with all that the source has said to it, and gone from disk before anybody else can have its devices;
//   - a container that is started again is given the very same, whatever became of the order of specs and files, and after a restart of
//     the node too; after a reboot the devices are the same, and the source is asked anew what they need;
//   - a granted device that is no longer there, or is other hardware under the old name, is an error that says so, for as long as that lasts or
//     until the pod goes. The container is never given another in its place: its program may have state there, and a different device
//     under the same pod is a surprise that nobody can see;
//   - no hardware is granted twice at a time, under whatever names, but within a pod: an init container's devices pass on to the containers
//     after it;
//   - a device whose host paths or numbers are not what its definition says is not granted; another of the resource is,
//     if there is one;
//   - nothing new is granted before the ledger was compared with what runs (Reconcile), from which a ledger that was lost is made again; a record that
//     cannot be read, and that the pod's containers do not tell either, stops new grants while its pod lives.
//
// What is short, unknown or away now makes a pod wait, not fail (Verdict). A subscription ticks when it may be worth asking again.
package devices
