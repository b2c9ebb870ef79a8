package podspec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a resolver configuration: those of the resolver that most images have, which kubelets keep to.
const (
	maxNameservers    = 3
	maxSearchDomains  = 32
	maxSearchListSize = 2048
	// maxSearchDomain: there are resolvers that abort at a longer one.
	maxSearchDomain = 253
)

// Reasons of events about a pod's resolver configuration, a kubelet's.
const (
	ReasonMissingClusterDNS = "MissingClusterDNS"
	ReasonDNSConfigForming  = "DNSConfigForming"
)

// DNS is a resolver configuration.
type DNS struct{ Servers, Searches, Options []string }

// HostDNS is how the host resolves names.
type HostDNS struct {
	// Own is the configuration of the host's own programs, or the one that was chosen for pods.
	Own DNS
	// Behind is whom a resolver on the host's loopback device asks, to which Own may send: systemd-resolved's. It may be empty.
	Behind DNS
	// Chosen: pods get Own as it is.
	Chosen bool
}

// of is what a pod gets of it. One with a network of its own does not reach what listens on the host's loopback device.
func (h *HostDNS) of(pod *v1.Pod) (DNS, []Notice) {
	if h.Chosen || pod.Spec.HostNetwork || len(h.Own.Servers) == 0 {
		return h.Own, nil
	}
	for _, dns := range []DNS{h.Own, h.Behind} {
		if dns.Servers = slices.DeleteFunc(slices.Clone(dns.Servers), onLoopback); len(dns.Servers) > 0 {
			return dns, nil
		}
	}
	why := fmt.Sprintf("pods can't reach the name servers of the host, %s, which are on its loopback device: "+
		"agent.resolvConf may name a file with others", strings.Join(h.Own.Servers, " "))
	return DNS{Searches: h.Own.Searches, Options: h.Own.Options}, []Notice{{Reason: ReasonDNSConfigForming, Message: "the pod has no name server: " + why, Node: why}}
}

func onLoopback(server string) bool {
	a, err := netip.ParseAddr(server)
	return err == nil && a.Unmap().IsLoopback()
}

// Notice is what a pod's owner is told in an event of the type Warning, since the pod does not get all that it asks for.
type Notice struct {
	Reason, Message string
	// Node is what the node's owner is told with the same reason; empty: nothing.
	Node string
}

// Notices are what is to be told about the configuration that Sandbox makes of the input.
func Notices(in SandboxInput) []Notice {
	_, notices := podDNS(in)
	return notices
}

// podDNS follows dnsPolicy and dnsConfig.
func podDNS(in SandboxInput) (*cri.DNSConfig, []Notice) {
	pod := in.Pod
	dns, notices := policyDNS(in)
	cfg := &cri.DNSConfig{Servers: unique(dns.Servers), Searches: unique(dns.Searches), Options: mergedOptions(dns.Options, nil)}
	if extra := pod.Spec.DNSConfig; extra != nil {
		cfg.Servers = unique(cfg.Servers, extra.Nameservers...)
		cfg.Searches = unique(cfg.Searches, extra.Searches...)
		cfg.Options = mergedOptions(cfg.Options, extra.Options)
	}
	if len(cfg.Servers) > maxNameservers {
		cfg.Servers = cfg.Servers[:maxNameservers]
		notices = append(notices, Notice{Reason: ReasonDNSConfigForming, Message: "Nameserver limits were exceeded, some nameservers have been omitted, " +
			"the applied nameserver line is: " + strings.Join(cfg.Servers, " ")})
	}
	if fitting := fittingSearches(cfg.Searches); len(fitting) < len(cfg.Searches) {
		cfg.Searches = fitting
		notices = append(notices, Notice{Reason: ReasonDNSConfigForming, Message: "Search Line limits were exceeded, some search paths have been omitted, " +
			"the applied search line is: " + strings.Join(cfg.Searches, " ")})
	}
	return cfg, notices
}

// policyDNS is what dnsPolicy stands for.
func policyDNS(in SandboxInput) (DNS, []Notice) {
	pod := in.Pod
	switch pod.Spec.DNSPolicy {
	case v1.DNSNone:
		return DNS{}, nil
	case v1.DNSDefault:
		return in.HostDNS.of(pod)
	case v1.DNSClusterFirst:
		if pod.Spec.HostNetwork {
			return in.HostDNS.of(pod)
		}
	}
	if len(in.ClusterDNS) == 0 {
		why := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
		dns, notices := in.HostDNS.of(pod)
		return dns, append([]Notice{{Reason: ReasonMissingClusterDNS, Node: why,
			Message: fmt.Sprintf("pod: %q. %s", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), why)}}, notices...)
	}
	dns := DNS{Servers: in.ClusterDNS, Searches: in.HostDNS.Own.Searches, Options: []string{"ndots:5"}}
	if domain := in.ClusterDomain; domain != "" {
		dns.Searches = slices.Concat([]string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}, dns.Searches)
	}
	return dns, nil
}

// unique is the list with more at its end, each of them once.
func unique(list []string, more ...string) []string {
	var all []string
	for _, s := range slices.Concat(list, more) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// mergedOptions are the options with more of them; the later one of a name counts.
func mergedOptions(options []string, more []v1.PodDNSConfigOption) []string {
	all := slices.Clone(options)
	for _, o := range more {
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		all = append(all, option)
	}
	var merged []string
	for i, o := range all {
		if !slices.ContainsFunc(all[i+1:], func(later string) bool { return optionName(later) == optionName(o) }) {
			merged = append(merged, o)
		}
	}
	return merged
}

func optionName(option string) string {
	name, _, _ := strings.Cut(option, ":")
	return name
}

// fittingSearches are as many of the domains as a resolver takes.
func fittingSearches(domains []string) []string {
	var fitting []string
	size := 0
	for _, d := range domains[:min(len(domains), maxSearchDomains)] {
		if len(d) > maxSearchDomain {
			continue
		}
		if size += len(d); size > maxSearchListSize {
			break
		}
		fitting = append(fitting, d)
		size++ // the blank
	}
	return fitting
}

// ParseResolvConf reads a resolv.conf(5). Lines that it does not know are skipped, as resolvers do.
func ParseResolvConf(content string) DNS {
	var dns DNS
	for line := range strings.Lines(content) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, f[1:min(len(f), 2)]...)
		case "search", "domain":
			// The last one wins. A domain is the same with and without the dot at its end, and the root is searched anyway.
			dns.Searches = nil
			for _, domain := range f[1:] {
				if domain != "." {
					dns.Searches = append(dns.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			dns.Options = mergedOptions(append(dns.Options, f[1:]...), nil)
		}
	}
	return dns
}
