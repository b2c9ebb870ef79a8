package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"monopod.dev/monopod/internal/dns/answer"
	"monopod.dev/monopod/internal/dns/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oneView knows nothing but one service.
type oneView struct{}

func (oneView) Service(namespace, name string) *answer.Service {
	if namespace != "default" || name != "web" {
		return nil
	}
	return &answer.Service{Addresses: []netip.Addr{netip.MustParseAddr("10.43.0.20")}}
}
func (oneView) HasNamespace(namespace string) bool  { return namespace == "default" }
func (oneView) NamesOf(netip.Addr) (names []string) { return nil }
func (oneView) Serial() uint32                      { return 1 }

// slowUpstream answers when it is let.
type slowUpstream struct {
	asked   chan struct{}
	release chan struct{}
}

func (u *slowUpstream) Cached(*message.Query) (*message.Foreign, time.Duration, bool) {
	return nil, 0, false
}

func (u *slowUpstream) Ask(ctx context.Context, q *message.Query) (*message.Foreign, time.Duration, error) {
	u.asked <- struct{}{}
	select {
	case <-u.release:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	raw, err := (&dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{q.Question}}).Pack()
	if err != nil {
		return nil, 0, err
	}
	f, err := message.ReadForeign(raw, q, 0)
	return f, 0, err
}

func startServer(t testing.TB, up Upstream, limits Limits) *Server {
	t.Helper()
	s, err := New(context.Background(), Config{
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Zone: &answer.Zone{Domain: "cluster.local"}, View: oneView{}, Upstream: up, Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func packed(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 5, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func dial(t *testing.T, network string, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial(network, s.Addr().String())
	if err == nil {
		err = c.SetDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ask(t *testing.T, c net.Conn, name string) {
	t.Helper()
	if _, err := c.Write(packed(t, name)); err != nil {
		t.Fatal(err)
	}
}

func said(t *testing.T, c net.Conn) dnsmessage.Message {
	t.Helper()
	buffer := make([]byte, 1500)
	n, err := c.Read(buffer)
	var m dnsmessage.Message
	if err == nil {
		err = m.Unpack(buffer[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A client whose questions nobody answers has its places, and no others; what is known is answered to it, and to all, meanwhile.
func TestWhoWaitsKeepsNobodyElse(t *testing.T) {
	up := &slowUpstream{asked: make(chan struct{}, 10), release: make(chan struct{})}
	s := startServer(t, up, Limits{WaitingPerClient: 2})
	c := dial(t, "udp", s)
	for range 2 {
		ask(t, c, "www.example.com.")
		<-up.asked
	}
	ask(t, c, "www.example.com.")
	if m := said(t, c); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("one too many: %v", m.RCode)
	}
	ask(t, c, "web.default.svc.cluster.local.")
	if m := said(t, c); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 || !m.Authoritative || !m.RecursionAvailable {
		t.Errorf("what is known: %+v", m)
	}
	close(up.release)
	for range 2 {
		if m := said(t, c); m.RCode != dnsmessage.RCodeSuccess || m.ID != 5 {
			t.Errorf("what was waited for: %+v", m)
		}
	}
}

func TestTCP(t *testing.T) {
	s := startServer(t, &slowUpstream{}, Limits{ConnectionsPerClient: 2})
	framed := func(raw []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...) }
	c := dial(t, "tcp", s)
	for range 3 { // one connection, several questions
		if _, err := c.Write(framed(packed(t, "web.default.svc.cluster.local."))); err != nil {
			t.Fatal(err)
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, binary.BigEndian.Uint16(size[:]))
		var m dnsmessage.Message
		if _, err := io.ReadFull(c, raw); err != nil || m.Unpack(raw) != nil || len(m.Answers) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	dial(t, "tcp", s)
	if third, err := net.Dial("tcp", s.Addr().String()); err == nil { // it may be cut before it is ours
		defer third.Close()
		if n, err := third.Read(make([]byte, 1)); err == nil {
			t.Errorf("one connection too many is answered with %d bytes", n)
		}
	}
}

func TestTooLongAQuestion(t *testing.T) {
	c := dial(t, "tcp", startServer(t, &slowUpstream{}, Limits{}))
	if _, err := c.Write([]byte{0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a question of 65535 bytes: %d bytes, %v", n, err)
	}
}

func TestThePortIsTaken(t *testing.T) {
	s := startServer(t, &slowUpstream{}, Limits{})
	at := s.Addr()
	_, err := New(context.Background(), Config{Addresses: []netip.Addr{at.Addr()}, Port: at.Port()})
	if err == nil {
		t.Fatal("two servers have one port")
	}
	t.Log(err)
}

func FuzzHandle(f *testing.F) {
	f.Add(packed(f, "web.default.svc.cluster.local."))
	f.Add(packed(f, "10-0-0-1.default.pod.cluster.local."))
	f.Add(packed(f, "20.0.43.10.in-addr.arpa."))
	s := &Server{cfg: Config{Zone: &answer.Zone{Domain: "cluster.local", Services: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}}, View: oneView{}, Upstream: &slowUpstream{}},
		waiting: newPlaces(1, 1)}
	client := netip.MustParseAddr("127.0.0.1")
	f.Fuzz(func(t *testing.T, raw []byte) {
		send := func(reply []byte) {
			var m dnsmessage.Message
			if err := m.Unpack(reply); err != nil || !m.Response || len(reply) > message.MaxUDP || binary.BigEndian.Uint16(reply) != binary.BigEndian.Uint16(raw) {
				t.Fatalf("answered with %x: %v", reply, err)
			}
		}
		s.handle(raw, client, func(q *message.Query) int { return q.Limit }, send, func(func(context.Context)) { s.waiting.give(client) })
	})
}
