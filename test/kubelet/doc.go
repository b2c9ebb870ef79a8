// Package kubelet holds `monopod runtime` against an unmodified upstream kubelet, which runs static pods on it without an API
// server: once with its defaults, once with evented PLEG and the statistics of CRI. Its configuration is the one of
// docs/KUBELET.md, with other paths and ports.
//
// Device plugins of others, and the emulated one of examples/, are tried under the same kubelet, to compare: the
// kubelet gives their devices, in part otherwise than our agent does (docs/DEVICES.md), and our runtime's containers have them.
//
// `make test-kubelet` builds the kubelet: $MONOPOD_KUBELET names it, and without it the tests fail. They are
// built with the tag "kubelet" only, so that `go test ./...` needs none; `make test-kubelet` runs them.
//
// They run in a mount and a network namespace of their own, because a kubelet has places on the host that cannot be configured
// (/var/lib/kubelet/device-plugins, /var/log/containers, iptables chains). The kernel's settings that it changes are put back.
package kubelet
