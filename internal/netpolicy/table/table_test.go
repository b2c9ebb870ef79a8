package table

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// step is a part of a test, on the goroutine that is in the host's namespace.
func (h *testHost) step(name string, f func()) {
	h.t.Helper()
	failed := h.t.Failed()
	f()
	if h.t.Failed() && !failed {
		h.t.Logf("that was at %q", name)
	}
}

// TestTraffic is real traffic of real pods.
func TestTraffic(t *testing.T) {
	h := newHost(t)
	web, db, probe := h.pod("shop", "web", compile.NamedPort{Name: "http", Protocol: 6, Number: 80}), h.pod("shop", "db"), h.pod("watch", "probe")
	out, host := h.outside(0), &machine{h: h, name: "the host"}
	for _, m := range []*machine{web, db, probe, out} {
		m.serve(80)
		m.serve(81)
	}
	h.hostPorts()
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
		h.enforce(c, "{podSelector: {}, policyTypes: [Egress, Ingress]}")
		probe.misses("tcp", host, hostPort)
		web.reaches("tcp", host, hostPort) // itself
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
}

// TestNobodyIsToldOfAShorterWay: what the host forwards to where it came from has none. Where it translates addresses the kernel does not tell of most of them itself.
func TestNobodyIsToldOfAShorterWay(t *testing.T) {
	h := newHost(t)
	web := h.pod("shop", "web")
	behind := netip.MustParseAddr("10.97.1.1")
	h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: h.link("mp0").Attrs().Index, Dst: whole(behind), Scope: netlink.SCOPE_LINK}))
	h.enforce(compile.New(), "{podSelector: {}}")
	web.misses("udp", behind, 80)
	if n := web.redirected(); n > 0 {
		t.Errorf("the host has told a pod %d times of a shorter way", n)
	}
}

// TestWhatAFormerVersionHasLeft judges what is routed before it is known which policies there are, and goes with the first rules that are written.
func TestWhatAFormerVersionHasLeft(t *testing.T) {
	h := newHost(t)
	web, db, probe := h.pod("shop", "web"), h.pod("shop", "db"), h.pod("watch", "probe")
	web.serve(80)
	h.enforce(compile.New(), "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
	h.table.Close()
	h.formerly()
	probe.reaches("tcp", web.ip, 80) // as by rules that only know what comes by the bridge
	h.table = h.open()
	for range 2 { // the first process may have died meanwhile
		h.must(h.table.Adopt())
		for _, to := range []netip.Addr{web.ip, web.ip6} {
			probe.misses("tcp", to, 80)
			db.reaches("tcp", to, 80)
		}
	}
	h.enforce(compile.New(), "{podSelector: {matchLabels: {app: db}}}")
	probe.reaches("tcp", web.ip, 80)
	for _, one := range h.tables() {
		if one.Family == nftables.TableFamilyBridge {
			t.Errorf("the table %s of the family bridge is left", one.Name)
		}
	}
	h.formerly()
	h.must(h.table.Remove())
	h.none()
	h.must(h.table.Adopt()) // there is nothing
	h.none()
}

// formerly makes the tables that are there those of a version whose pods were on a bridge, as far as they differ for what is routed.
func (h *testHost) formerly() {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	w := &writer{conn: conn, cfg: h.table.cfg, rules: map[string]int{}}
	c := &nftables.Chain{Name: forwardChain, Table: w.table()}
	conn.FlushChain(c)
	w.rule(c, replies(), verdict(expr.VerdictAccept))
	name := append([]byte(bridgeName), make([]byte, unix.IFNAMSIZ-len(bridgeName))...)
	w.rule(c, meta(expr.MetaKeyIIFNAME, name...), verdict(expr.VerdictJump, "out"))
	w.rule(c, meta(expr.MetaKeyOIFNAME, name...), verdict(expr.VerdictJump, "in"))
	conn.AddTable(&nftables.Table{Name: h.table.cfg.Name(), Family: nftables.TableFamilyBridge})
	if err := conn.Flush(); errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		h.t.Skip("the kernel has no nftables for bridges")
	} else if err != nil {
		h.t.Fatal(err)
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
	harness.Eventually(t, "the table is there again", func() (bool, string) {
		n := 0
		for _, one := range h.tables() {
			if one.Name == h.table.cfg.Name() {
				n++
			}
		}
		return n == 1, fmt.Sprint(n)
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
		t.Error("a new process claims to have written the table")
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
	harness.NftLists(t, "table inet "+h.table.cfg.Name(), "chain in4", "chain out6")
}
