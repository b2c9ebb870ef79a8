package rules

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// leases are a ledger of one range.
type leases map[ids.SandboxID]lease.Lease

func (l leases) All() map[ids.SandboxID]lease.Lease { return l }

func (l leases) UsedRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.201.0.0/24")}
}

// open opens the rules of a network in a network namespace of the test's own.
func open(t *testing.T, l leases, change func(*Config)) *Rules {
	t.Helper()
	harness.NewNetwork(t)
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	cfg := Config{Network: podnet.Network{Name: "mpt0"}, Leases: l, NetNS: here, Links: netlink.LinkByName, Writes: func(uint32) {},
		SwitchedOn: func() (Families, error) { return Families{}, nil }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is written is found to be there, what comes and goes with sandboxes too, and what somebody takes away is missed.
func TestRules(t *testing.T) {
	l := leases{}
	r := open(t, l, nil)
	if err := r.Check(); err == nil {
		t.Error("the table is there before it was written")
	}
	must(t, r.Install())
	must(t, r.Verify())
	rec := lease.Lease{Interface: "mp0123456789ab", Addresses: []lease.Address{{Address: netip.MustParsePrefix("10.201.0.2/24"), Gateway: netip.MustParseAddr("10.201.0.1")}},
		HostPorts: []network.HostPort{{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}}}
	l["one"] = rec
	must(t, r.Admit(rec, true))
	must(t, r.Verify())
	conn, err := nftables.New()
	must(t, err)
	elements := func(name string) int {
		t.Helper()
		set, err := conn.GetSetByName(&nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}, name)
		must(t, err)
		all, err := conn.GetSetElements(set)
		must(t, err)
		return len(all)
	}
	if at, from := elements("any4"), elements("from4"); at != 1 || from != 1 {
		t.Errorf("%d host ports and %d sources, want one of each", at, from)
	}
	conn.FlushSet(&nftables.Set{Name: "from4", Table: &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}})
	must(t, conn.Flush())
	if err := r.Verify(); err == nil {
		t.Error("the source of a sandbox that is not there is not missed")
	}
	must(t, r.Install())
	rec.Leaving = true
	l["one"] = rec
	must(t, r.Unmap(rec))
	if at, from := elements("any4"), elements("from4"); at != 0 || from != 1 {
		t.Errorf("%d host ports and %d sources of one that leaves, want the source alone", at, from)
	}
	delete(l, "one")
	r.Dismiss(rec)
	if from := elements("from4"); from != 0 {
		t.Errorf("%d sources of one that is gone", from)
	}
	must(t, r.Verify())
	must(t, r.Remove())
	if tables, err := conn.ListTables(); err != nil || len(tables) != 0 {
		t.Errorf("%d tables are left, %v", len(tables), err)
	}
}

// A rule of others that the library cannot read is no reason to do without the network, and a refusal behind it is seen still.
func TestForeignRulesThatCannotBeRead(t *testing.T) {
	r := open(t, leases{}, nil)
	conn, err := nftables.New()
	must(t, err)
	table := conn.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyINet})
	chain := conn.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, // ct original proto-dst
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 22}},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}})
	must(t, conn.Flush())
	if _, err := conn.GetRules(table, chain); err == nil {
		t.Log("the library can read it by now")
	}
	must(t, r.Install())
	must(t, r.do(func(f *firewall) error {
		rules, err := f.rulesOf(chain)
		if err != nil {
			return err
		}
		// The two rules of the network are between them.
		if len(rules) != 4 || !refusesAll(rules[3].Exprs, false) || refusesAll(rules[0].Exprs, false) {
			t.Errorf("%d rules: %+v", len(rules), rules)
		}
		return nil
	}))
	must(t, r.Remove())
	if rules, err := r.plain(chain); err != nil || len(rules) != 2 {
		t.Errorf("%d rules are left, %v", len(rules), err)
	}
}

// plain are the rules of a chain.
func (r *Rules) plain(c *nftables.Chain) (rules []*nftables.Rule, err error) {
	err = r.do(func(f *firewall) (err error) {
		rules, err = f.rulesOf(c)
		return err
	})
	return rules, err
}

func TestBoundOfConnections(t *testing.T) {
	for name, c := range map[string]struct {
		configured *int32
		room       int
		want       bound
	}{
		"nothing said":    {nil, 262144, bound{65536, 32, 16, 174}},
		"a small machine": {nil, 8192, bound{2048, 4, 4, 174}},
		"a large one":     {nil, 4 << 20, bound{1 << 20, 32, 256, 174}},
		"none":            {new(int32(0)), 262144, bound{}},
		"a number":        {new(int32(500)), 262144, bound{500, 1, 3, 219}},
		"few":             {new(int32(40)), 262144, bound{40, 1, 1, 40}},
	} {
		if got := boundOf(c.configured, c.room); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}

// It is pure.
func TestConcernOfEvents(t *testing.T) {
	name := func(attr int, v string) []byte { return nl.NewRtAttr(attr, nl.ZeroTerminated(v)).Serialize() }
	event := func(family byte, attrs ...[]byte) []byte {
		b := []byte{family, 0, 0, 0}
		for _, a := range attrs {
			b = append(b, a...)
		}
		return b
	}
	hook := nlsock.Nested(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_HOOK_HOOKNUM, make([]byte, 4))).Serialize()
	foreign := map[chainName]bool{{unix.NFPROTO_IPV4, "filter", "FORWARD"}: true}
	for what, c := range map[string]struct {
		kind uint16
		body []byte
		want ruleset.Concern
	}{
		"own table deleted":             {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_INET, name(1, "mpt0")), ruleset.Touched},
		"own bridge table deleted":      {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_BRIDGE, name(1, "mpt0")), ruleset.Touched},
		"own rule deleted":              {unix.NFT_MSG_DELRULE, event(unix.NFPROTO_INET, name(1, "mpt0"), name(2, "guard")), ruleset.Touched},
		"own element deleted":           {unix.NFT_MSG_DELSETELEM, event(unix.NFPROTO_BRIDGE, name(1, "mpt0"), name(2, "from4")), ruleset.Touched},
		"own chain deleted":             {unix.NFT_MSG_DELCHAIN, event(unix.NFPROTO_INET, name(1, "mpt0"), hook), ruleset.Touched},
		"a table of that name, ip":      {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_IPV4, name(1, "mpt0")), ruleset.Untouched},
		"another table":                 {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_INET, name(1, "mpt1")), ruleset.Untouched},
		"another's elements":            {unix.NFT_MSG_NEWSETELEM, event(unix.NFPROTO_IPV4, name(1, "kube-proxy"), name(2, "x")), ruleset.Untouched},
		"another's base chain":          {unix.NFT_MSG_NEWCHAIN, event(unix.NFPROTO_IPV4, name(1, "filter"), hook), ruleset.Elsewhere},
		"another's chain":               {unix.NFT_MSG_NEWCHAIN, event(unix.NFPROTO_IPV4, name(1, "filter")), ruleset.Untouched},
		"a rule in a chain that counts": {unix.NFT_MSG_NEWRULE, event(unix.NFPROTO_IPV4, name(1, "filter"), name(2, "FORWARD")), ruleset.Elsewhere},
		"a rule elsewhere":              {unix.NFT_MSG_NEWRULE, event(unix.NFPROTO_IPV4, name(1, "filter"), name(2, "INPUT")), ruleset.Untouched},
		"the end of a transaction":      {unix.NFT_MSG_NEWGEN, event(unix.NFPROTO_UNSPEC, name(1, "mpt0")), ruleset.Untouched},
		"nothing":                       {unix.NFT_MSG_DELTABLE, nil, ruleset.Untouched},
	} {
		var got ruleset.Concern
		if e, ok := ruleset.ParseEvent(unix.NFNL_SUBSYS_NFTABLES<<8|c.kind, c.body); ok {
			got = concernOf(e, "mpt0", foreign)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// Where the marked rules go. It is pure.
func TestPlaceOfMarkedRules(t *testing.T) {
	end := map[string][]expr.Any{
		"drop": {&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}, "reject": {&expr.Log{}, &expr.Reject{}},
		"REJECT": {&expr.Counter{}, &expr.Target{Name: "REJECT"}}, "return": {&expr.Verdict{Kind: expr.VerdictReturn}},
	}
	for _, c := range []struct {
		rules  string // M: ours, N: another node's, x: anything, else a key of end
		policy bool
		never  bool
		add    bool
		before uint64 // a rule, counted from 1
		remove int
	}{
		{rules: ""},
		{rules: "x x"},
		{rules: "", policy: true, add: true},
		{rules: "x x", policy: true, add: true},
		{rules: "x drop", add: true, before: 2},
		{rules: "x reject x", add: true, before: 2},
		{rules: "x REJECT", policy: true, add: true, before: 2},
		{rules: "x return", policy: true, add: true, before: 2},
		{rules: "x return"},
		{rules: "x M M", policy: true},
		{rules: "x M M N N", policy: true},
		{rules: "x N N M M drop"},
		{rules: "x M M N N drop x"},
		{rules: "M M x", policy: true, add: true, remove: 2},
		{rules: "M x M", policy: true, add: true, remove: 2},
		{rules: "x M", policy: true, add: true, remove: 1},
		{rules: "x M M M", policy: true, add: true, remove: 3},
		{rules: "x M M x drop", add: true, before: 5, remove: 2},
		{rules: "x drop M M", add: true, before: 2, remove: 2},
		{rules: "x M M", remove: 2},
		{rules: "x M M", policy: true, never: true, remove: 2},
		{rules: "x M M drop", never: true, remove: 2},
		{rules: "x", policy: true, never: true},
	} {
		var rules []*nftables.Rule
		for i, kind := range strings.Fields(c.rules) {
			r := &nftables.Rule{Handle: uint64(i + 1), Exprs: []expr.Any{&expr.Meta{}, &expr.Cmp{}, &expr.Verdict{Kind: expr.VerdictDrop}}}
			switch kind {
			case "M", "N":
				r.UserData = userdata.AppendString(nil, userdata.TypeComment, map[string]string{"M": "monopod a", "N": "monopod b"}[kind])
			case "x":
			default:
				r.Exprs = end[kind]
			}
			rules = append(rules, r)
		}
		p := placeIn(rules, c.policy, c.never, "monopod a", 2)
		if p.add != c.add || p.add && p.before != c.before || len(p.remove) != c.remove {
			t.Errorf("%q, policy drop %v, never %v: %+v", c.rules, c.policy, c.never, p)
		}
	}
}

// What belongs to a sandbox is its own addresses.
func TestSourceElements(t *testing.T) {
	rec := lease.Lease{Interface: "mp0123456789ab", Addresses: []lease.Address{{Address: netip.MustParsePrefix("10.0.0.2/24")}, {Address: netip.MustParsePrefix("fd00::2/64")}}}
	key := func(ip string) string {
		return "mp0123456789ab\x00\x00" + string(netip.MustParseAddr(ip).AsSlice())
	}
	for i, want := range [][]string{{key("10.0.0.2")}, {key("fd00::2")}} {
		fam := sourceFamilies[i]
		var got []string
		for _, e := range sourceElements(fam, rec) {
			got = append(got, string(e.Key))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", fam.set, got, want)
		}
	}
}
