package bridge

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// foreignChain is a forward chain of an administrator, which drops by policy.
type foreignChain struct {
	h     *testHost
	conn  *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain
}

func (h *testHost) foreignChain() *foreignChain {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	drop := nftables.ChainPolicyDrop
	c := &foreignChain{h: h, conn: conn, table: conn.AddTable(&nftables.Table{Name: "office", Family: nftables.TableFamilyINet})}
	c.chain = conn.AddChain(&nftables.Chain{Name: "forward", Table: c.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	h.must(conn.Flush())
	h.t.Cleanup(func() {
		conn.DelTable(c.table)
		h.must(conn.Flush())
	})
	return c
}

// add appends a rule with a comment.
func (c *foreignChain) add(comment string, exprs ...expr.Any) {
	c.h.t.Helper()
	c.conn.AddRule(&nftables.Rule{Table: c.table, Chain: c.chain, UserData: userdata.AppendString(nil, userdata.TypeComment, comment), Exprs: exprs})
	c.h.must(c.conn.Flush())
}

// rules lists the comments.
func (c *foreignChain) rules() (out []string) {
	c.h.t.Helper()
	all, err := c.conn.GetRules(c.table, c.chain)
	c.h.must(err)
	for _, r := range all {
		comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		out = append(out, comment)
	}
	return out
}

func to(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(port >> 8), byte(port)}},
	}
}

// What an administrator forbids pods stays forbidden: his rules have their say before the node's, those of later too; and a
// setting keeps the node's rules out of his chains.
func TestAdministratorsRulesComeFirst(t *testing.T) {
	h := newHost(t)
	outside, _, machine := h.outside("192.168.77.0/30")
	for _, port := range []int{80, 81, 82} {
		h.serve(outside, fmt.Sprintf("0.0.0.0:%d", port))
	}
	chain := h.foreignChain()
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	chain.add("not 81", append(to(81), drop)...)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	pod := h.sandbox("pod")
	h.setup(b, "pod", pod)
	reaches := func(when string, port int, want bool) {
		t.Helper()
		if _, err := h.tryAskIf(want, pod, fmt.Sprintf("%s:%d", machine, port)); (err == nil) != want {
			t.Errorf("%s: a pod reaches port %d: %v, want an answer %v", when, port, err, want)
		}
	}
	ordered := func(want ...string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("the rules are %q", want), func() (bool, string) {
			got := chain.rules()
			return slices.Equal(got, want), fmt.Sprintf("%q", got)
		})
	}
	const own = "monopod mpt0"
	ordered("not 81", own, own)
	reaches("at first", 80, true)
	reaches("at first", 81, false)
	// A rule that comes later has its say, too. Nobody asks for Status.
	chain.add("not 82", append(to(82), drop)...)
	ordered("not 81", "not 82", own, own)
	reaches("with a rule more", 80, true)
	reaches("with a rule more", 82, false)
	chain.add("nothing else", &expr.Counter{}, drop)
	ordered("not 81", "not 82", own, own, "nothing else")
	reaches("with an end", 80, true)
	// Two nodes do not drive each other about.
	h.bridge(Config{Network: podnet.Network{Name: "mpt1", Ranges: ranges("10.202.0.0/24")}})
	ordered("not 81", "not 82", own, own, "monopod mpt1", "monopod mpt1", "nothing else")
	h.must(b.Status(t.Context()))
	ordered("not 81", "not 82", own, own, "monopod mpt1", "monopod mpt1", "nothing else")

	cfg.NoForeignRules = true
	b = h.bridge(cfg)
	ordered("not 81", "not 82", "monopod mpt1", "monopod mpt1", "nothing else")
	reaches("switched off", 80, false)
	h.must(b.Status(t.Context()))
	ordered("not 81", "not 82", "monopod mpt1", "monopod mpt1", "nothing else")
}

// Whoever looks at his own rules with the tools that he has sees them, with those of the node in words that the tools have.
func TestToolsOfOthersReadTheRules(t *testing.T) {
	h := newHost(t)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, chain := range []string{"INPUT", "FORWARD"} {
			run(tool, "-w", "-P", chain, "DROP")
		}
	}
	t.Cleanup(func() { harness.ClearNetwork(t) })
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}, DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10"), netip.MustParseAddr("fd43::a")},
		OwnPorts: []network.OwnPort{{Protocol: "TCP", Port: 6443, Of: "the API server's"}}})
	h.connectPorts(b, "a", h.sandbox("a"), network.HostPort{Protocol: "TCP", HostPort: 80, ContainerPort: 80})
	for tool, want := range map[string][]string{
		"iptables":  {"-s 10.201.0.0/24 -i mp+", "-d 10.201.0.0/24 -o mp+", "-d 10.43.0.10/32 -i mp+ -p udp -m udp --dport 53", "-d 10.43.0.10/32 -i mp+ -p tcp -m tcp --dport 53"},
		"ip6tables": {"-o mp+", "-d fd43::a/128 -i mp+ -p udp -m udp --dport 53", "-d fd43::a/128 -i mp+ -p tcp -m tcp --dport 53"},
	} {
		got := run(tool, "-w", "-S")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s -S does not say %q:\n%s", tool, w, got)
			}
		}
	}
	harness.NftLists(t, "10.43.0.10")
}
