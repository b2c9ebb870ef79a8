// Package pod serves the resource pods of core/v1 and its subresources status, binding, log, exec, attach,
// portforward and proxy.
//
// What it guarantees:
//   - spec and status have separate writers: pods changes metadata and the few mutable fields of the spec,
//     pods/status changes the status;
//   - a field that Monopod does not honour is refused by name, never ignored (internal/pods/fields lists every field);
//   - a pod is bound to a node once;
//   - to act inside a pod (exec, attach, portforward) takes the verb create, whatever method the protocol begins with;
//   - a pod that is bound and still running is deleted in two steps: its deletionTimestamp is set first, and the agent
//     of its node removes the object, with a grace period of zero, when the containers are gone.
//
// log, exec, attach and portforward are carried to the HTTPS API of the agent on the pod's node by package reach, and
// proxy to the pod itself; this package never reaches a container.
//
// The type in memory and the type on disk are k8s.io/api/core/v1.Pod alike: there is no internal version.
package pod
