package table

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// transactionsOf is the number of the last transaction that anybody has made in the namespace.
func (t *Table) transactionsOf(tb testing.TB) (gen uint32) {
	tb.Helper()
	q := nlsock.Request{What: "read the generation", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Body: make([]byte, 4)}
	err := t.reader.Dump(q, func(body []byte) {
		nlsock.EachAttr(body[4:], func(typ uint16, data []byte) {
			if typ == 1 && len(data) == 4 { // NFTA_GEN_ID
				gen = uint32(data[0])<<24 | uint32(data[1])<<16 | uint32(data[2])<<8 | uint32(data[3])
			}
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return gen
}

// cpu is the processor time of this thread, in the kernel and without.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCost measures with 1 and with 1,000 services of 5 endpoints each what a change of one service costs, and a new connection.
func TestCost(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	to := at(vip4, 80).String()
	one := *balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(ips[0], 8080)}}.service()
	for _, n := range []int{1, 1000} {
		all := map[string]Service{"default/one": one}
		for i := range n - 1 {
			all[fmt.Sprint("default/", i)] = testService(i, 5)
		}
		begin := time.Now()
		tbl := h.open(all)
		start := time.Since(begin)
		const rounds = 200
		var wall []time.Duration
		begun := cpu()
		for i := range rounds {
			s := testService(5000, 5+i%2) // an endpoint comes, or goes
			before := time.Now()
			h.apply(tbl, "default/changed", &s)
			wall = append(wall, time.Since(before))
		}
		used := (cpu() - begun) / rounds
		slices.Sort(wall)
		var connect []time.Duration
		h.at(client, func() error { return nil })
		for range 300 {
			before := time.Now()
			if got := h.ask(client, to); !strings.HasPrefix(got, "server") {
				t.Fatalf("%q", got)
			}
			connect = append(connect, time.Since(before))
		}
		slices.Sort(connect)
		t.Logf("%d services: start %v; a change %v of a processor, %v until it is done (99%%: %v); a connection %v",
			n, start, used, wall[rounds/2], wall[rounds*99/100], connect[len(connect)/2])
		if limit := 50 * time.Millisecond; used > limit {
			t.Errorf("with %d services a change takes %v of a processor, more than %v", n, used, limit)
		}
		tbl.watcher.SetActive(false)
	}
}
