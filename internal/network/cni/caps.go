package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/network"
)

// Capabilities that this package fills in (CONVENTIONS.md of CNI).
const (
	portMappings = "portMappings"
	bandwidth    = "bandwidth"
	ipRanges     = "ipRanges"
	dns          = "dns"
	cgroupPath   = "cgroupPath"
)

// The annotations of a pod that limit its bandwidth, in bits a second, seen from the pod.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// Kubernetes allows what is between them.
const (
	minRate = 1000                     // 1k
	maxRate = 1000 * 1000 * 1000 * 1e6 // 1P
)

// A bucket holds a tenth of a second's bits, and never less than two of the largest packets that the kernel hands on whole, of
// 64 KiB: it would drop them else.
const (
	burstFraction = 10
	minBurst      = 2 * 64 << 10 * 8
)

type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

type bandwidthLimits struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

type ipRange struct {
	Subnet netip.Prefix `json:"subnet"`
}

type dnsConfig struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// runtimeConfig is what plugins that have the capability for it are told, by the capability. What there is nothing to say of is
// left out.
func runtimeConfig(req network.Request, ranges []netip.Prefix) (map[string]json.RawMessage, error) {
	limits, err := bandwidthOf(req.Annotations)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if limits != (bandwidthLimits{}) {
		values[bandwidth] = limits
	}
	var mappings []portMapping
	for _, p := range req.HostPorts {
		m := portMapping{HostPort: p.HostPort, ContainerPort: p.ContainerPort, Protocol: strings.ToLower(p.Protocol)}
		if p.HostIP.IsValid() && !p.HostIP.IsUnspecified() {
			m.HostIP = p.HostIP.String()
		}
		mappings = append(mappings, m)
	}
	if len(mappings) > 0 {
		values[portMappings] = mappings
	}
	var sets [][]ipRange // an address is taken out of each
	for _, p := range ranges {
		sets = append(sets, []ipRange{{p}})
	}
	if len(sets) > 0 {
		values[ipRanges] = sets
	}
	if d := req.DNS; d != nil && len(d.Servers)+len(d.Searches)+len(d.Options) > 0 {
		values[dns] = dnsConfig{d.Servers, d.Searches, d.Options}
	}
	if req.CgroupParent != "" {
		values[cgroupPath] = req.CgroupParent
	}
	raw := map[string]json.RawMessage{}
	for name, v := range values {
		if raw[name], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// bandwidthOf reads the annotations that limit the bandwidth.
func bandwidthOf(annotations map[string]string) (l bandwidthLimits, err error) {
	if l.IngressRate, err = rate(annotations, ingressAnnotation); err != nil {
		return l, err
	}
	if l.EgressRate, err = rate(annotations, egressAnnotation); err != nil {
		return l, err
	}
	l.IngressBurst, l.EgressBurst = burst(l.IngressRate), burst(l.EgressRate)
	return l, nil
}

// rate reads one annotation, in bits a second; 0: there is none.
func rate(annotations map[string]string, key string) (uint64, error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %q is no quantity (bits a second, such as 10M): %w: %w", key, text, err, errdefs.ErrInvalidArgument)
	}
	if v := q.Value(); v < minRate || v > maxRate {
		return 0, fmt.Errorf("annotation %s: %q bits a second is not between 1k and 1P: %w", key, text, errdefs.ErrInvalidArgument)
	}
	return uint64(q.Value()), nil
}

// burst is the size of the bucket of a rate, in bits.
func burst(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	// The plugin counts in bytes and the kernel in 32 bits.
	return min(max(rate/burstFraction, minBurst), math.MaxInt32)
}

// plain are the plugins of the CNI project that make an interface and do nothing else. Other networks may map ports of the host
// by means of their own, and do not want to be told.
var plain = []string{"bridge", "ptp", "macvlan", "ipvlan", "vlan", "host-device", "dummy", "tap"}

// cannot refuses what a list's plugins are known not to do, and tells what they may not do.
func cannot(has map[string]bool, main string, req network.Request) (maybe []string, err error) {
	if len(req.HostPorts) > 0 && !has[portMappings] {
		if slices.Contains(plain, main) {
			return nil, fmt.Errorf("host port %d: no plugin of the CNI configuration has the capability %s: add the plugin portmap, or ask for no host port: %w",
				req.HostPorts[0].HostPort, portMappings, errdefs.ErrFailedPrecondition)
		}
		maybe = append(maybe, "host ports")
	}
	if req.Annotations[ingressAnnotation]+req.Annotations[egressAnnotation] != "" && !has[bandwidth] {
		maybe = append(maybe, "bandwidth annotations")
	}
	return maybe, nil
}

// arguments are CNI_ARGS as the runtimes of Kubernetes send them.
func arguments(req network.Request) ([][2]string, error) {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", req.Pod.Namespace},
		{"K8S_POD_NAME", req.Pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", string(req.SandboxID)},
		{"K8S_POD_UID", req.Pod.UID},
	}
	for _, a := range args {
		if strings.ContainsAny(a[1], ";=\x00\n") {
			return nil, fmt.Errorf("the pod's %s %q cannot be told to CNI plugins: it must not contain ';', '=' or a line's end: %w",
				strings.ToLower(strings.TrimPrefix(a[0], "K8S_POD_")), a[1], errdefs.ErrInvalidArgument)
		}
	}
	return args, nil
}
