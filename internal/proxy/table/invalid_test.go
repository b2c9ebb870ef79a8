package table

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
)

// joined is a connection with both of its ends.
type joined struct {
	h              *testHost
	client, server net.Conn
}

// join connects from a namespace to an address at which the listener answers.
func (h *testHost) join(l net.Listener, from, to string) joined {
	h.t.Helper()
	j := joined{h: h}
	h.at(from, func() (err error) {
		j.client, err = net.DialTimeout("tcp", to, time.Minute)
		return err
	})
	var err error
	j.server, err = l.Accept()
	h.must(err)
	h.t.Cleanup(func() { j.client.Close(); j.server.Close() })
	return j
}

// talk sends so many bytes each way.
func (j joined) talk(n int) error {
	for _, way := range [][2]net.Conn{{j.client, j.server}, {j.server, j.client}} {
		sent := make(chan error, 1)
		go func() {
			_, err := way[0].Write(make([]byte, n))
			sent <- err
		}()
		if err := way[1].SetReadDeadline(time.Now().Add(10 * time.Second * harness.SlowFactor())); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, way[1], int64(n)); err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
	}
	return nil
}

func (h *testHost) listen(path, address string) (l net.Listener) {
	h.t.Helper()
	h.at(path, func() (err error) { l, err = net.Listen("tcp4", address); return err })
	h.t.Cleanup(func() { l.Close() })
	return l
}

// TestInvalidSegmentsResetNothing: a segment that connection tracking takes for invalid is not translated. Whoever got it as it is would reset the connection.
func TestInvalidSegmentsResetNothing(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	server, ips := h.pod("server")
	l := h.listen(server, "0.0.0.0:80")
	outside := h.host.String() + ":8000"
	b := balanced{fronts: []string{"10.43.0.7:80", outside, ":30080"}, endpoints: []netip.AddrPort{at(ips[0], 80)}}
	h.open(map[string]Service{"default/web": *b.service()})
	node := h.host.String() + ":30080"
	for _, c := range []struct{ name, from, to string }{
		{"from a pod", client, "10.43.0.7:80"}, {"from the pod itself", server, "10.43.0.7:80"}, {"from a pod, to a node port", client, node},
		{"from the host", "", "10.43.0.7:80"}, {"from the host, to a node port", "", node},
		{"from outside", h.outside, outside}, {"from outside, to a node port", h.outside, node},
	} {
		j := h.join(l, c.from, c.to)
		for end, stray := range map[string]func(){
			"the server": func() { harness.Stray(t, server, j.server) },
			"the client": func() { harness.Stray(t, c.from, j.client) },
		} {
			stray()
			for range 2 { // what resets a connection is here before the second answer
				if err := j.talk(1); err != nil {
					t.Errorf("%s: after a stray segment of %s: %v", c.name, end, err)
					break
				}
			}
		}
	}
}

// TestADirectConnectionLivesThroughAnEndpointsAbsence: what a pod has with an endpoint's own address goes on while the endpoint is none, without the host, and when
// it is one again.
func TestADirectConnectionLivesThroughAnEndpointsAbsence(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	server, ips := h.pod("server")
	l := h.listen(server, "0.0.0.0:80")
	b := balanced{fronts: []string{"10.43.0.7:80"}, endpoints: []netip.AddrPort{at(ips[0], 80)}}
	tbl := h.open(map[string]Service{"default/web": *b.service()})
	direct := h.join(l, client, at(ips[0], 80).String())
	for _, there := range []bool{true, false, true} {
		if b.endpoints = nil; there {
			b.endpoints = []netip.AddrPort{at(ips[0], 80)}
		}
		h.apply(tbl, "default/web", b.service())
		if err := direct.talk(32 << 20); err != nil {
			t.Errorf("the endpoint is there: %v: directly: %v", there, err)
		}
	}
}
