package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHostnames(t *testing.T) {
	yes, no, other, long := true, false, "a.b", strings.Repeat("x", 62)+"-y"
	exact := strings.Repeat("h", maxFQDN-len(".sub.ns.svc.cluster.local"))
	for _, c := range []struct {
		name string
		pod  string
		spec v1.PodSpec
		// hostname, domain and kernel are what the hosts file and the kernel say.
		hostname, domain, kernel string
		fault                    string
	}{
		{name: "the pod's name", pod: "p", hostname: "p", kernel: "p"},
		{name: "a name of its own", pod: "p", spec: v1.PodSpec{Hostname: "h"}, hostname: "h", kernel: "h"},
		{name: "a long name", pod: long, hostname: strings.Repeat("x", 62), kernel: strings.Repeat("x", 62)},
		{name: "on the host's network", pod: "p", spec: v1.PodSpec{HostNetwork: true, Hostname: "h"}, hostname: "node"},
		{name: "in a domain", pod: "p", spec: v1.PodSpec{Subdomain: "sub"}, hostname: "p", domain: "sub.ns.svc.cluster.local", kernel: "p"},
		{name: "in a domain, not as host name", pod: "p", spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &no}, hostname: "p", domain: "sub.ns.svc.cluster.local", kernel: "p"},
		{name: "in a domain, as host name", pod: "p", spec: v1.PodSpec{Hostname: "h", Subdomain: "sub", SetHostnameAsFQDN: &yes},
			hostname: "h", domain: "sub.ns.svc.cluster.local", kernel: "h.sub.ns.svc.cluster.local"},
		{name: "as long as the kernel takes", pod: exact, spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &yes},
			hostname: exact, domain: "sub.ns.svc.cluster.local", kernel: exact + ".sub.ns.svc.cluster.local"},
		{name: "longer", pod: exact + "h", spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &yes},
			hostname: exact + "h", domain: "sub.ns.svc.cluster.local", kernel: exact + "h", fault: "is too long (64 characters is the max, 65 characters requested)"},
		{name: "longer, but no host name", pod: exact + "h", spec: v1.PodSpec{Subdomain: "sub"}, hostname: exact + "h", domain: "sub.ns.svc.cluster.local", kernel: exact + "h"},
		{name: "without a domain", pod: "p", spec: v1.PodSpec{SetHostnameAsFQDN: &yes}, hostname: "p", kernel: "p"},
		{name: "overridden", pod: "p", spec: v1.PodSpec{HostnameOverride: &other, Hostname: "h", Subdomain: "sub"}, hostname: "a.b", kernel: "a.b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: c.pod}, Spec: c.spec}
			in := SandboxInput{Pod: pod, NodeName: "node", ClusterDomain: "cluster.local"}
			if got := Hostname(pod, "node"); got != c.hostname {
				t.Errorf("host name %q, want %q", got, c.hostname)
			}
			if got := HostDomain(pod, "cluster.local"); got != c.domain {
				t.Errorf("domain %q, want %q", got, c.domain)
			}
			if got := Sandbox(in).Hostname; got != c.kernel {
				t.Errorf("the kernel's name %q, want %q", got, c.kernel)
			}
			if err := Check(in); err == nil && c.fault != "" || err != nil && (c.fault == "" || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
	if got := HostDomain(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{Subdomain: "s"}}, ""); got != "s.ns.svc" {
		t.Errorf("without a cluster's domain: %q", got)
	}
}
