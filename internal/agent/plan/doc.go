// Package plan decides what a pod's worker does next, and what it tells the API server about the pod.
//
// Everything here is a pure function of an Input: the pod's specification, what the runtime holds of it, which actions
// are under way or failed, and the time. There is no input or output, no goroutine and no clock, so that each rule can be tested as a
// line of a table, and a worker that is restarted decides the same from the same facts.
//
// What it guarantees:
//   - a container is never started without the devices that the pod asks for;
//   - a phase Succeeded or Failed is never taken back;
//   - an exit code is told only when the runtime, or the API server from an earlier status, knows it. A container that
//     was running and cannot be found is reported with code 255 and reason ContainerStatusUnknown;
//   - the same facts give the same actions: repeating an action is the worker's way to go on after a crash.
//
// What it does not: it does not look at whether an action is possible on this host; the action's failure comes back as a Failure.
package plan
