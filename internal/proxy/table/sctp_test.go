package table

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/proxy/plan"
)

// SCTP needs no SCTP in the kernel to be led: a packet made by hand arrives at the endpoint, at its port.
func TestSCTP(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	server, ips := h.pod("server")
	end := at(ips[0], 3869)
	front := plan.Front{Protocol: unix.IPPROTO_SCTP, Addr: vip4, Port: 3868}
	h.open(map[string]Service{"default/sctp": {Plan: plan.Service{
		Inside: map[plan.Front]plan.Target{front: {List: "one"}}, Lists: map[string]plan.List{"one": {Protocol: unix.IPPROTO_SCTP, Endpoints: []netip.AddrPort{end}}},
		Local: map[plan.LocalEndpoint]bool{{Protocol: unix.IPPROTO_SCTP, At: end}: true},
	}}})
	var l *net.IPConn
	h.at(server, func() (err error) {
		l, err = net.ListenIP("ip4:132", &net.IPAddr{IP: ips[0].AsSlice()})
		return err
	})
	defer l.Close()
	// An INIT is sent again until it is answered, as clients do (RFC 9260, 5.1): one that comes before the link is ready is lost.
	var c *net.IPConn
	h.at(client, func() (err error) {
		c, err = net.DialIP("ip4:132", nil, &net.IPAddr{IP: vip4.AsSlice()})
		return err
	})
	defer c.Close()
	buf := make([]byte, 1500)
	n, last := 0, time.Now().Add(time.Minute)
	for n < 12 {
		if _, err := c.Write(sctpInit(40000, front.Port)); err != nil {
			t.Logf("sending: %v", err) // what came back for an earlier one
		}
		h.must(l.SetReadDeadline(time.Now().Add(time.Second)))
		var err error
		if n, _, err = l.ReadFrom(buf); err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(last)) {
			t.Fatalf("no SCTP packet has come: %v", err)
		}
	}
	if port := binary.BigEndian.Uint16(buf[2:]); port != end.Port() {
		t.Errorf("it came to port %d", port)
	}
}

// sctpInit is an INIT packet (RFC 9260, 3.3.2).
func sctpInit(from, to uint16) []byte {
	p := make([]byte, 32)
	binary.BigEndian.PutUint16(p, from)
	binary.BigEndian.PutUint16(p[2:], to)
	p[12] = 1                                // INIT
	binary.BigEndian.PutUint16(p[14:], 20)   // its length
	binary.BigEndian.PutUint32(p[16:], 4711) // initiate tag
	binary.BigEndian.PutUint32(p[20:], 65536)
	binary.BigEndian.PutUint16(p[24:], 1)
	binary.BigEndian.PutUint16(p[26:], 1)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}
