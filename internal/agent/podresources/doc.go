// Package podresources serves the kubelet's PodResources API, v1 (k8s.io/kubelet/pkg/apis/podresources/v1), from which exporters and
// topology updaters learn which pod has which devices.
//
// What it guarantees:
//   - a device that is granted to a container that goes on beside others is told for as long as it is granted, also after the pod's phase
//     has become final;
//   - one ContainerDevices entry, as kubelets give them, is one device. Its device ids are all names of that device, the one that it was
//     granted by first: an exporter finds a GPU by index and by UUID. So devices are to be counted by entries, not by ids;
//   - an entry's topology has all NUMA nodes of the device, and is absent where none is known. (Kubelets repeat the entry for each node.)
//   - the same facts give the same bytes.
//
// What it does not: no CPUs and no memory are told, because the node pins none; nor dynamic resources, because it has no DRA.
package podresources
