package table

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/test/harness"
)

// whole waits until nothing is missing. It changes nothing.
func (h *testHost) whole(t *Table, after string) {
	h.t.Helper()
	harness.Eventually(h.t, "after "+after+" the rules are there again", func() (bool, string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		have, err := t.read()
		return err == nil && len(t.book.difference(have)) == 0 && len(t.missingWays()) == 0, fmt.Sprint(err)
	})
}

// What somebody takes away, adds or changes is put right at once, and Remove is the last word.
func TestRulesAreRepaired(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	to := at(vip4, 80).String()
	tbl := h.open(map[string]Service{"default/web": *balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(ips[0], 8080)}, affinity: 100}.service()})
	conn, err := nftables.New()
	h.must(err)
	n := tbl.names
	chain := func(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: n.own} }
	way := chainOf(wayKey{setID{services, 0}, balance(1, 100)})
	for name, harm := range map[string]func(){
		"nft flush ruleset":           conn.FlushRuleset,
		"deleting the table":          func() { conn.DelTable(n.own) },
		"flushing a chain":            func() { conn.FlushChain(chain(outputChain)) },
		"flushing the chain of a way": func() { conn.FlushChain(chain(way)) },
		"flushing the services":       func() { conn.FlushSet(n.set(setID{services, 0})) },
		"flushing the endpoints":      func() { conn.FlushSet(n.set(setID{endpoints, 0})) },
		"flushing the ways":           func() { conn.FlushSet(n.waySet(setID{services, 0})) },
		"adding a service": func() {
			h.must(conn.SetAddElements(n.set(setID{own, 0}), []nftables.SetElement{{Key: []byte{10, 0, 0, 1}}}))
		},
		"putting a rule before another": func() {
			conn.InsertRule(&nftables.Rule{Table: n.own, Chain: chain(insideChain), Exprs: verdict(expr.VerdictAccept)})
		},
	} {
		harm()
		begin := time.Now()
		h.must(conn.Flush())
		h.whole(tbl, name)
		t.Logf("%s: %v", name, time.Since(begin))
		if got := h.ask(client, to); !strings.HasPrefix(got, "server") {
			t.Errorf("after %s: %q", name, got)
		}
	}
	looks := tbl.watcher.Looks()
	h.apply(tbl, "default/other", balanced{fronts: []string{at(vip6, 81).String()}}.service())
	if now := tbl.watcher.Looks(); now != looks {
		t.Error("own changes make it look")
	}
	h.must(tbl.Remove())
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	h.must(err)
	for _, table := range tables {
		if table.Name == testTable {
			t.Error("it came back after Remove")
		}
	}
}

// A process that ends, as by kill -9, leaves everything working; the next one changes nothing that is as it should be, and what has become otherwise meanwhile,
// without a moment in between.
func TestRestart(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	other, otherIPs := h.pod("other")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	h.serve(other, "other", 8080)
	web, gone := at(vip4, 80).String(), at(vip4, 81).String()
	b := balanced{fronts: []string{web}, endpoints: []netip.AddrPort{at(ips[0], 8080), at(otherIPs[0], 8080)}, affinity: 1000}
	all := map[string]Service{"default/web": *b.service(), "default/gone": *balanced{fronts: []string{gone}, endpoints: b.endpoints}.service()}
	first := h.open(all)
	was := strings.Fields(h.ask(client, web))[0]
	first.watcher.SetActive(false) // as if it had ended
	before := first.transactionsOf(t)
	h.open(all).watcher.SetActive(false)
	if after := first.transactionsOf(t); after != before {
		t.Errorf("a start that finds everything in order makes transactions: generation %d, then %d", before, after)
	}
	if got := strings.Fields(h.ask(client, web))[0]; got != was {
		t.Errorf("affinity is lost by a restart: %s, then %s", was, got)
	}
	delete(all, "default/gone")
	b.affinity = 0
	b.endpoints = b.endpoints[:1]
	all["default/web"] = *b.service()
	h.open(all)
	if after := first.transactionsOf(t); after > before+2 { // a way, and the elements
		t.Errorf("generation %d, then %d", before, after)
	}
	for range 5 {
		if got := h.ask(client, web); !strings.HasPrefix(got, "server") {
			t.Errorf("after the restart: %q", got)
		}
	}
	if !h.silent(client, gone) {
		t.Error("a service that has gone meanwhile answers")
	}
}

// TestAShapeIsTheSameInEveryProcess: another process finds the table of this one in order. (TestRestart has only one process.)
func TestAShapeIsTheSameInEveryProcess(t *testing.T) {
	p := site{networks: networksOf(testBridge), ranges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")}}
	var text strings.Builder
	shapeOf(p).spell(&text)
	for line := range strings.Lines(text.String()) {
		if pointer.MatchString(line) {
			t.Errorf("an address of memory is part of what a shape is known by: %s", line)
		}
	}
}

// pointer is how fmt prints one.
var pointer = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// What the kernel refuses of one service does not stop others, neither at a start nor later.
func TestARefusedServiceStopsNoOther(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	good := func(port uint16) (Service, string) {
		to := at(vip4, port).String()
		return *balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(ips[0], 8080)}}.service(), to
	}
	// A key that is too long is what no kernel takes.
	bad, _ := good(666)
	front := plan.Front{Protocol: 6, Addr: vip4, Port: 666}
	bad.Plan.Ranges[front] = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	one, toOne := good(81)
	tbl, err := Open(t.Context(), Config{Name: testTable, Networks: networksOf(testBridge)})
	h.must(err)
	t.Cleanup(func() { h.must(tbl.Remove()); tbl.Close() })
	refused, err := tbl.Start(t.Context(), nil, map[string]Service{"default/bad": bad, "default/one": one})
	h.must(err)
	if len(refused) != 1 || refused["default/bad"] == nil {
		t.Errorf("at the start refused: %v", refused)
	}
	two, toTwo := good(82)
	refused = tbl.Apply(t.Context(), map[string]*Service{"default/bad": &bad, "default/two": &two})
	if len(refused) != 1 || refused["default/bad"] == nil {
		t.Errorf("refused: %v", refused)
	}
	for _, to := range []string{toOne, toTwo} {
		if got := h.ask(client, to); !strings.HasPrefix(got, "server") {
			t.Errorf("%s: %q", to, got)
		}
	}
	if len(tbl.book.services) != 2 {
		t.Errorf("%d services are kept", len(tbl.book.services))
	}
}

// A transaction that fails for once is made up for, and changes nothing until then.
func TestAFailedTransactionIsMadeUpFor(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	to := at(vip4, 80).String()
	s := balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(ips[0], 8080)}}.service()
	tbl := h.open(nil)
	full := func() error { return errors.New("no memory") }
	transaction, write := failpoint.Arm("proxy/table/transaction", full), failpoint.Arm("proxy/table/write", full)
	if refused := tbl.Apply(t.Context(), map[string]*Service{"default/web": s}); refused["default/web"] == nil {
		t.Error("a transaction that fails is no error")
	}
	if len(tbl.book.wanted) != 0 {
		t.Error("what was refused is taken for there")
	}
	transaction()
	write()
	h.apply(tbl, "default/web", s)
	if got := h.ask(client, to); !strings.HasPrefix(got, "server") {
		t.Errorf("%q", got)
	}
}
