package podspec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseResolvConf(t *testing.T) {
	for _, c := range []struct {
		content string
		want    DNS
	}{
		{"", DNS{}},
		{"# a comment\n;another\n#nameserver 9.9.9.9\nnonsense\nnameserver\nnameserver 10.0.0.1 # ours\n\tnameserver fd00::1\n", DNS{Servers: []string{"10.0.0.1", "fd00::1"}}},
		{"domain old\nsearch a. b .\n", DNS{Searches: []string{"a", "b"}}},
		{"search a\nsearch\n", DNS{}},
		{"search a\ndomain b\n", DNS{Searches: []string{"b"}}},
		{"options ndots:1 rotate\noptions ndots:2 edns0\n", DNS{Options: []string{"rotate", "ndots:2", "edns0"}}},
	} {
		if got := ParseResolvConf(c.content); len(got.Servers)+len(c.want.Servers) > 0 && !reflect.DeepEqual(got.Servers, c.want.Servers) ||
			strings.Join(got.Searches, " ") != strings.Join(c.want.Searches, " ") || strings.Join(got.Options, " ") != strings.Join(c.want.Options, " ") {
			t.Errorf("%q:\n%+v, want\n%+v", c.content, got, c.want)
		}
	}
}

func TestPodDNS(t *testing.T) {
	host := DNS{[]string{"10.0.0.1", "10.0.0.2"}, []string{"a", "b"}, []string{"ndots:1", "rotate"}}
	five, empty := "5", ""
	extra := &v1.PodDNSConfig{Nameservers: []string{"fd00::1", "10.0.0.1"}, Searches: []string{"b", "c"},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &five}, {Name: "edns0"}, {Name: "rotate", Value: &empty}}}
	cluster := []string{"10.43.0.10", "fd00:43::10"}
	stub := DNS{Servers: []string{"127.0.0.53"}, Searches: []string{"lan"}, Options: []string{"edns0"}}
	for _, c := range []struct {
		name    string
		spec    v1.PodSpec
		cluster []string
		domain  string
		host    *DNS
		behind  DNS
		chosen  bool
		want    string
		// notices are the reasons of what is told.
		notices string
	}{
		{name: "Default", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, cluster: cluster, domain: "cluster.local", want: "10.0.0.1 10.0.0.2; a b; ndots:1 rotate"},
		{name: "Default and more", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: extra}, want: "10.0.0.1 10.0.0.2 fd00::1; a b c; ndots:5 edns0 rotate"},
		{name: "ClusterFirst", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, cluster: cluster, domain: "cluster.local",
			want: "10.43.0.10 fd00:43::10; ns.svc.cluster.local svc.cluster.local cluster.local a b; ndots:5"},
		{name: "ClusterFirst and more", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, DNSConfig: extra}, cluster: cluster[:1], domain: "b",
			want: "10.43.0.10 fd00::1 10.0.0.1; ns.svc.b svc.b b a c; ndots:5 edns0 rotate"},
		{name: "ClusterFirst without a domain", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, cluster: cluster[:1], want: "10.43.0.10; a b; ndots:5"},
		{name: "ClusterFirst without a server", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, domain: "cluster.local", want: "10.0.0.1 10.0.0.2; a b; ndots:1 rotate",
			notices: ReasonMissingClusterDNS},
		{name: "ClusterFirst on the host's network", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true}, cluster: cluster, want: "10.0.0.1 10.0.0.2; a b; ndots:1 rotate"},
		{name: "ClusterFirstWithHostNet", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true}, cluster: cluster[1:], domain: "x",
			want: "fd00:43::10; ns.svc.x svc.x x a b; ndots:5"},
		{name: "ClusterFirstWithHostNet without a server", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true},
			want: "10.0.0.1 10.0.0.2; a b; ndots:1 rotate", notices: ReasonMissingClusterDNS},
		{name: "None", spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: extra}, cluster: cluster, domain: "x", want: "fd00::1 10.0.0.1; b c; ndots:5 edns0 rotate"},
		{name: "too many servers", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2"}}},
			want: "10.0.0.1 10.0.0.2 1.1.1.1; a b; ndots:1 rotate", notices: ReasonDNSConfigForming},
		{name: "a host with too much", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, host: &DNS{Servers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"},
			Searches: []string{"a", strings.Repeat("x", 254), "b"}}, want: "1.1.1.1 2.2.2.2 3.3.3.3; a b; ", notices: ReasonDNSConfigForming + " " + ReasonDNSConfigForming},
		{name: "a resolver on the host", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, host: &stub, behind: DNS{Servers: []string{"::1", "9.9.9.9"}, Searches: []string{"c"}}, want: "9.9.9.9; c; "},
		{name: "which others stand beside", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, host: &DNS{Servers: []string{"127.0.0.1", "8.8.8.8", "::ffff:127.0.0.1", "::1"}, Searches: []string{"a"}},
			behind: host, want: "8.8.8.8; a; "},
		{name: "of which pods of the host's network know", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, HostNetwork: true}, host: &stub, behind: host, want: "127.0.0.53; lan; edns0"},
		{name: "with nobody behind it", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, host: &stub, behind: stub, want: "; lan; edns0",
			notices: ReasonMissingClusterDNS + " " + ReasonDNSConfigForming},
		{name: "which was chosen", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, host: &stub, behind: host, chosen: true, want: "127.0.0.53; lan; edns0"},
		{name: "and the cluster's", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, cluster: cluster[:1], domain: "x", host: &stub, want: "10.43.0.10; ns.svc.x svc.x x lan; ndots:5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := SandboxInput{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: c.spec}, HostDNS: HostDNS{Own: host, Behind: c.behind, Chosen: c.chosen}, ClusterDNS: c.cluster, ClusterDomain: c.domain}
			if c.host != nil {
				in.HostDNS.Own = *c.host
			}
			dns := Sandbox(in).DnsConfig
			if got := strings.Join([]string{strings.Join(dns.Servers, " "), strings.Join(dns.Searches, " "), strings.Join(dns.Options, " ")}, "; "); got != c.want {
				t.Errorf("%s, want\n%s", got, c.want)
			}
			var reasons []string
			for _, n := range Notices(in) {
				reasons = append(reasons, n.Reason)
				if (n.Node != "") != (n.Reason == ReasonMissingClusterDNS || strings.Contains(n.Message, "loopback")) {
					t.Errorf("the node is told %q", n.Node)
				}
			}
			if got := strings.Join(reasons, " "); got != c.notices {
				t.Errorf("told %q, want %q", got, c.notices)
			}
		})
	}
	if strings.Join(host.Options, " ") != "ndots:1 rotate" || cluster[0] != "10.43.0.10" {
		t.Error("the input was changed")
	}
}

func TestSearchLimits(t *testing.T) {
	many := func(n, size int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("%0*d", size, i))
		}
		return list
	}
	for _, c := range []struct{ n, size, want int }{
		{32, 10, 32}, {33, 10, 32},
		{8, 255, 0}, // each too long
		{20, 127, 16}, {16, 127, 16}, {32, 63, 32}, {32, 64, 31},
	} {
		if got := fittingSearches(many(c.n, c.size)); len(got) != c.want || len(strings.Join(got, " ")) > maxSearchListSize {
			t.Errorf("%d of %d characters: %d, want %d", c.n, c.size, len(got), c.want)
		}
	}
}
