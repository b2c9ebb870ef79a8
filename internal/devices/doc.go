// Package devices is the role that knows the host's devices, counts them as extended resources, and grants them to
// containers.
//
// Where devices come from is a Source; CDI specs are one (package cdi), device plugins will be another. Which devices a
// request gets is decided by package alloc, purely. Who has what is the ledger, a table of the state database.
//
// A grant belongs to a pod and one of its containers, and it lasts as long as the pod. It guarantees:
//   - a grant is on disk before Grant returns it, and gone from disk before anybody else can have its devices;
//   - a container that asks again is given the very same devices, whatever became of the order of specs and files, and
//     after a restart of the node too;
//   - a granted device that is no longer there is an error that says so, for as long as it is away or until the pod goes.
//     The container is never given another in its place: its program may have state there, and a different device
//     under the same pod is a surprise that nobody can see. Whether the container ever ran with the device is not known
//     here, so the rule does not depend on it;
//   - no device is granted twice at a time, but within a pod: an init container's devices pass on to the containers
//     after it (GrantRequest.Init);
//   - a device whose host paths or numbers are not what its definition says is not granted; another of the resource is,
//     if there is one;
//   - a ledger record that cannot be read stops new grants while its pod lives, because nobody can say which devices it
//     holds; it spoils nothing that was granted before.
//
// What is short, unknown or away now is a *NotReadyError: the pod is to wait, not to fail. Changed ticks when it may be
// worth asking again.
package devices
