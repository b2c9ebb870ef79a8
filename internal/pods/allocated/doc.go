// Package allocated is what pods have of a node: how much of its processors, its memory and the rest each container has, and the pod together, with the
// overhead of its sandbox. The binder, the agent's admission, the cgroups, what the runtime is told of containers, the statuses and the downward API all ask
// here, so that none of them can reckon otherwise than another; a test of internal/archtest holds that nobody else reads requests and limits.
//
//	Of       what a pod has by its specification
//	Held     what it has as seen from outside, by its status too
//	Given    what it was given when it was admitted, which its agent keeps (package agent/admit)
//
// They are the same as long as nobody changes the resources of a pod. Where an API server lets that be done (in-place resize, KEP-1287), an agent goes on with
// what it has given: to it a pod has that in its specification (Given.In), whatever the API says by now.
//
// Sums are those of k8s.io/component-helpers, as the scheduler and the kubelet have them. Package allocated is pure.
package allocated
