// Package bench measures a whole node from outside: what a client of CRI and a client of the Kubernetes API see. Run it
// with `make bench` on a quiet machine, and compare only figures of one run.
//
// Figures: pod-up is RunPodSandbox + CreateContainer + StartContainer, pod-down is stop and remove of both;
// create-to-running is from a pod's POST until a watch shows it Running; delete-to-gone until the watch shows it deleted;
// node-ready is from the start of `monopod up` with empty directories until the Node is Ready. Times are medians, in
// milliseconds; memory is proportional set size in kB.
package bench
