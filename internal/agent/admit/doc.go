// Package admit says whether the node takes a pod, in the words of a kubelet, and keeps what the pods that it has taken have of it.
//
// Decide is the rule: a pure function of the node, of what its pods have together, and of one pod. The Ledger holds what each pod was given when it was
// admitted, and sums of it, so that neither the other pods nor their specifications are read again: a decision costs the same with ten pods and with a
// thousand. What a pod was given is what it has, whatever its specification asks for by now: the agent makes its cgroup, its containers and its status of the pod
// that Ledger.Admitted returns. In-place resize (KEP-1287) would change an entry here, and nobody else would have to reckon; what carries it out would be a verb of
// package plan, and after a restart the ledger would have to learn what was given from the pod's status.
//
// Extended resources are not counted here: devices are granted one by one, and a pod waits for them.
package admit
