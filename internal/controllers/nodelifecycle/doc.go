// Package nodelifecycle says of nodes whose agent is silent that nothing is known of them, and taints nodes by what their conditions say.
//
// An agent lives as long as something new is heard of it: a renewed Lease in kube-node-lease, or a heartbeat in the Node's status. What counts is when
// the controller saw it, by its own clock; times that agents write are only compared with each other. So clocks that differ hurt nobody, and a
// controller that was away grants every node its whole time again.
//
//	               nothing new for 50 s (60 s where no status was ever posted)
//	Ready=True ─────────────────────────────────────────────► Ready=Unknown
//	     ▲                                                          │
//	     └────────────── the agent posts its status ◄───────────────┘
//
// Of a silent node the conditions Ready, MemoryPressure, DiskPressure and PIDPressure become Unknown. Its pods, and those of a node that says itself
// that it is not ready, lose their condition Ready, each of them once: an agent that is there after all has the last word.
//
// Taints follow the conditions, by upstream's names: node.kubernetes.io/unreachable (Ready is Unknown) and not-ready (False) with NoSchedule and NoExecute;
// memory-pressure, disk-pressure, pid-pressure, network-unavailable and unschedulable with NoSchedule. Nobody else's taints are touched.
//
// Before a node is given up its Lease is read from the API server, because a watch that is late says the same as an agent that is silent. As long as
// agents renew, nothing wakes but their renewals: a node's timer is put off by each.
package nodelifecycle
