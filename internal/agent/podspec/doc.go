// Package podspec translates a pod of the Kubernetes API to CRI's configurations of its sandbox and containers.
//
// It is pure: what has to be looked up first (environment, mounts, devices, the host's name servers) comes in as
// values. The labels and annotations that it writes are the kubelet's, so that crictl and other clients of the runtime
// show the pod, and FactsOf reads from them what the agent must know of a container that an earlier agent made.
package podspec
