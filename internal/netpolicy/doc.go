// Package netpolicy is the role that enforces network policies (networking.k8s.io/v1) on the built-in network of this node: it watches policies, pods and
// namespaces by client-go, compiles them (package compile), and has the kernel judge packets by the result (package table).
//
// It guarantees:
//   - a pod of the network is isolated, in a direction, from the moment at which a policy that selects it was enforced here, and what its policies let
//     through passes; a change of policies, pods or namespaces is one transaction of the kernel;
//   - a pod's sandbox is connected when its policies hold, and before that nothing of it passes, as long as there is any policy;
//   - the kernel judges on while the process is away, and the next process replaces the rules at once, when it knows as much as the one before;
//   - without policies, or without pods on the network, there is no rule, no watch but that of policies, and nothing that a pod waits for.
//
// It does not enforce anything for pods of the host's network, for pods that CNI connects, nor between a pod and the node that it is on: that traffic always
// passes, as the API says.
package netpolicy
