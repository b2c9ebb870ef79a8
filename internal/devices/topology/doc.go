// Package topology says which NUMA nodes a container's, or a pod's, devices are to come from. It is pure: the same nodes, devices and
// requests give the same answer, in whatever order they are listed.
//
// The words and the rules are those of Kubernetes' topology manager (KEP-693, KEP-3545 for prefer-closest-numa-nodes, KEP-4622 for
// max-allowable-numa-nodes, and kubernetes.io/docs/tasks/administer-cluster/topology-manager):
//   - A hint of a resource is a set of NUMA nodes from which a request for it can be met. It is preferred when no smaller set could meet
//     the request if all devices of the resource were free and healthy.
//   - One hint of each resource is chosen. Together they give the nodes that all of them have in common, and that is preferred when each is
//     preferred and all are the same set. Of all the choices the best is the affinity: preferred before not, then fewer nodes, then (only with
//     prefer-closest-numa-nodes) the smaller mean distance, then the lower nodes. Where no choice is preferred the number of nodes is judged
//     otherwise: best is the one that the neediest resource must have at least, then the next lower ones, then the next higher.
//   - none aligns nothing; best-effort takes the best there is; restricted refuses what is not preferred; single-numa-node refuses all but one
//     node for all resources.
//
// # Use
//
// PerContainer: for each container in the pod's order Align its requests, and take its devices. PerPod: Align the PodCounts of the pod once, and take each
// container's devices by that one affinity. Either way devices are taken in the order that Split gives to those handed down, and then in the order that
// it gives to those available; where a plugin has a preference, Offer says among which.
//
// # What is guaranteed
//
//   - A preferred affinity, which is all that restricted and single-numa-node admit, has enough devices for every resource whose devices know
//     their nodes; taken in the order of Candidates, every device of the request is near it, but for those handed down that know no node.
//   - A resource of which no device knows its node has no preference, and neither has a request for none. A device that knows no node beside
//     others that do is in no hint, and is taken last.
//   - A node that the host does not have is not known: whoever says 7 on a host of two nodes says nothing.
//   - A refusal is an *AffinityError, which says for each resource from where it could have come.
//
// Nothing is said here about how many devices are free: a request that is short of them gets no hint, as with kubelets, and it is for the caller
// to let its pod wait instead of asking.
//
// # Where a kubelet does otherwise
//
//   - More devices handed down than asked for: a kubelet wants all of them in a hint, so a pod whose init container had two devices of two nodes
//     is refused for one of them by restricted. Here a hint needs only as many of them as are asked for.
//   - A request for none is weighed by a kubelet, and can refuse a pod.
//   - Distances are read by a kubelet as if node ids had no gaps, and its sets hold ids up to 63.
//   - max-allowable-numa-nodes has no upper end with a kubelet, its time has: see below.
//
// # Cost
//
// By its definition the affinity is the best of all combinations, of which 3 resources on 8 nodes have 16 million. They are not gone through, and
// need not be, for the order among what they give is total: it does not matter which combination gives a set, only which sets are given.
//   - The preferred ones are the sets that every resource prefers: an intersection.
//   - Of the others only those sets count that are an intersection of one hint of each resource. They are found resource by resource, by counting
//     (see meet) in n 2^n steps on n nodes however many hints there are.
//
// Hints of a resource whose devices are near k nodes take one step a device and k 2^k more. On 8 nodes all of that is some ten microseconds a resource;
// MaxNodes is where 2^n ends to be a small number.
package topology
