package table

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/test/harness"
)

func kindOf(namespace, app string, ports ...compile.NamedPort) *compile.Kind {
	var list []corev1.ContainerPort
	for _, p := range ports {
		for name, number := range compile.Protocols {
			if number == p.Protocol {
				list = append(list, corev1.ContainerPort{Name: p.Name, Protocol: name, ContainerPort: int32(p.Number)})
			}
		}
	}
	return compile.KindOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: list}}},
	})
}

// enforce has these policies of the namespace shop hold.
func (h *testHost) enforce(c *compile.Compiler, specs ...string) {
	h.t.Helper()
	var all []*networkingv1.NetworkPolicy
	for i, text := range specs {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)}}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, p)
	}
	c.Learn(all, []compile.Namespace{{Name: "shop", Labels: map[string]string{"team": "a"}}, {Name: "watch", Labels: map[string]string{"team": "b"}}})
	r := c.Compile(h.pods)
	h.must(h.table.Apply(&r))
}

// brNetfilter switches br_netfilter on or off for this host, where the kernel has it.
func (h *testHost) brNetfilter(on string) bool {
	for _, name := range []string{"iptables", "ip6tables"} {
		if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte(on), 0); err != nil {
			return false
		}
	}
	return true
}

// step is a part of a test, on the goroutine that is in the host's namespace.
func (h *testHost) step(name string, f func()) {
	h.t.Helper()
	failed := h.t.Failed()
	f()
	if h.t.Failed() && !failed {
		h.t.Logf("that was at %q", name)
	}
}

// TestTraffic is real traffic of real pods, with and without br_netfilter.
func TestTraffic(t *testing.T) {
	for _, on := range []string{"0", "1"} {
		t.Run("br_netfilter "+on, func(t *testing.T) {
			h := newHost(t)
			if !h.brNetfilter(on) && on == "1" {
				t.Skip("the kernel has no br_netfilter")
			}
			web, db, probe := h.pod("shop", "web", compile.NamedPort{Name: "http", Protocol: 6, Number: 80}), h.pod("shop", "db"), h.pod("watch", "probe")
			out, host := h.outside(0), &machine{h: h, name: "the host"}
			for _, m := range []*machine{web, db, probe, out} {
				m.serve(80)
				m.serve(81)
			}
			c := compile.New()
			h.step("deny all that comes", func() {
				h.enforce(c, "{podSelector: {}}")
				for _, to := range []netip.Addr{web.ip, web.ip6} {
					for _, from := range []*machine{db, probe} {
						from.misses("tcp", to, 80)
						from.misses("udp", to, 80)
					}
					host.reaches("tcp", to, 80)
					host.reaches("udp", to, 81)
					web.reaches("tcp", to, 80)
				}
				out.misses("tcp", web.ip, 80)
				out.misses("tcp", web.ip6, 80)
				web.reaches("tcp", probe.ip, 80) // answers come back
				web.reaches("udp", probe.ip6, 80)
				web.reaches("tcp", out.ip, 80)
				db.misses("tcp", web.ip, 81)
				probe.reaches("udp", out.ip, 80)
			})
			h.step("ports and names", func() {
				h.enforce(c, "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}, {from: [{podSelector: {}}], ports: [{port: 81, endPort: 90, protocol: UDP}]}]}")
				for _, to := range []netip.Addr{web.ip, web.ip6} {
					probe.reaches("tcp", to, 80)
					probe.misses("udp", to, 80)
					probe.misses("udp", to, 81)
					db.reaches("udp", to, 81)
					db.misses("tcp", to, 81)
				}
				out.reaches("tcp", web.ip, 80)
				out.misses("tcp", web.ip6, 81)
				probe.reaches("tcp", db.ip, 81)
			})
			h.step("egress", func() {
				h.enforce(c, "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 80}]}]}")
				for _, to := range []netip.Addr{probe.ip, probe.ip6} {
					web.reaches("tcp", to, 80)
					web.misses("tcp", to, 81)
					web.misses("udp", to, 80)
				}
				web.misses("tcp", db.ip, 80)
				web.misses("tcp", out.ip, 80)
				db.reaches("tcp", web.ip, 80)
				db.reaches("udp", web.ip6, 80)
				out.reaches("tcp", web.ip, 80)
			})
			h.step("blocks", func() {
				h.enforce(c, fmt.Sprintf("{podSelector: {}, policyTypes: [Egress, Ingress], egress: [{to: [{ipBlock: {cidr: 198.51.0.0/16, except: [198.51.101.0/24]}}, {ipBlock: {cidr: '%s/128'}}]}], ingress: [{from: [{ipBlock: {cidr: '::/0'}}]}]}", probe.ip6))
				web.reaches("tcp", out.ip, 80)
				web.misses("tcp", out.ip6, 80)
				web.misses("tcp", probe.ip, 80)
				web.reaches("tcp", probe.ip6, 80)
				out.reaches("tcp", web.ip6, 80)
				out.misses("tcp", web.ip, 80)
				h.enforce(c, "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.0.0/16, except: [198.51.100.0/24]}}]}]}")
				web.misses("tcp", out.ip, 80)
				h.enforce(c, "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.0.0/16, except: [198.51.101.0/24]}}]}, {to: [{ipBlock: {cidr: 198.51.101.0/24}}], ports: [{port: 1}]}]}")
				web.reaches("tcp", out.ip, 80)
			})
			h.step("a host port", func() {
				host := netip.MustParseAddr("198.51.100.0")
				h.enforce(c, "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.1/32}}], ports: [{port: 80}]}]}")
				out.reaches("tcp", host, hostPort)
				probe.misses("tcp", host, hostPort)
				h.enforce(c, "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 80}]}]}")
				out.misses("tcp", host, hostPort)
				probe.reaches("tcp", host, hostPort)
			})
			h.step("what is there already", func() {
				h.enforce(c, "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
				answers, back := db.talk(web.ip, 81), web.talk(probe.ip, 81)
				if !answers() || !back() {
					t.Error("there is no answer to what is allowed")
				}
				h.enforce(c, "{podSelector: {}}")
				if answers() || !back() {
					t.Error("a conversation goes on that is forbidden now, or one does not that is not")
				}
				h.enforce(c, "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
				if !answers() {
					t.Error("a conversation does not go on that is allowed again")
				}
			})
			h.step("a pod that nobody knows", func() {
				h.enforce(c, "{podSelector: {matchLabels: {app: nobody}}}")
				known := h.pods
				probe.reaches("tcp", db.ip, 80)
				h.pods = h.pods[:2]
				h.enforce(c, "{podSelector: {matchLabels: {app: nobody}}}")
				probe.misses("tcp", db.ip, 80)
				db.misses("udp", probe.ip6, 80)
				out.misses("tcp", probe.ip, 80)
				probe.misses("tcp", out.ip, 80)
				host.reaches("tcp", probe.ip, 80)
				h.pods = known
				h.enforce(c, "{podSelector: {matchLabels: {app: nobody}}}")
				probe.reaches("tcp", db.ip, 80)
			})
		})
	}
}

// TestFlushIsRepaired: what somebody takes away is there again at once.
func TestFlushIsRepaired(t *testing.T) {
	h := newHost(t)
	web, db := h.pod("shop", "web"), h.pod("shop", "db")
	web.serve(80)
	h.enforce(compile.New(), "{podSelector: {}}")
	db.misses("tcp", web.ip, 80)
	conn, err := nftables.New()
	h.must(err)
	for _, one := range h.tables() {
		if one.Name == h.table.cfg.Name() {
			conn.DelTable(one)
		}
	}
	h.must(conn.Flush())
	harness.Eventually(t, "the tables are there again", func() (bool, string) {
		n := 0
		for _, one := range h.tables() {
			if one.Name == h.table.cfg.Name() {
				n++
			}
		}
		return n == 2, fmt.Sprint(n)
	})
	db.misses("tcp", web.ip, 80)
}

// TestAnotherProcess: the rules stay when the process ends, and the next one replaces them without a gap.
func TestAnotherProcess(t *testing.T) {
	h := newHost(t)
	web, db := h.pod("shop", "web"), h.pod("shop", "db")
	web.serve(80)
	h.enforce(compile.New(), "{podSelector: {}}")
	h.table.Close()
	db.misses("tcp", web.ip, 80)
	h.table = h.open()
	if on, _ := h.table.Installed(); on {
		t.Error("a new process claims to have written the tables")
	}
	db.misses("tcp", web.ip, 80)
	h.enforce(compile.New(), "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
	db.reaches("tcp", web.ip, 80)
}

// TestNftLists: whoever looks at the host's rules sees them, those of others as well. Debian 12's nft has not heard of what is done here, and must not abort.
func TestNftLists(t *testing.T) {
	h := newHost(t)
	h.pod("shop", "web", compile.NamedPort{Name: "http", Protocol: 6, Number: 80})
	h.pod("watch", "probe")
	h.enforce(compile.New(), "{podSelector: {}, policyTypes: [Egress, Ingress], egress: [{to: [{ipBlock: {cidr: 198.51.0.0/16, except: [198.51.101.0/24]}}]}], "+
		"ingress: [{ports: [{port: http}]}, {from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 81, endPort: 90}]}]}")
	harness.NftLists(t, "table inet "+h.table.cfg.Name(), "table bridge "+h.table.cfg.Name(), "chain in4", "chain out6")
}
