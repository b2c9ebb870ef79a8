package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"monopod.dev/monopod/internal/dns/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameServer answers over UDP and TCP at one port.
type nameServer struct {
	at     netip.AddrPort
	asked  atomic.Int32
	answer func(q dnsmessage.Question, tcp bool) *dnsmessage.Message
}

func startNameServer(t *testing.T, answer func(q dnsmessage.Question, tcp bool) *dnsmessage.Message) *nameServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{at: l.Addr().(*net.TCPAddr).AddrPort(), answer: answer}
	var running sync.WaitGroup
	running.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.reply(t, buf[:n], false); reply != nil {
				_, _ = p.WriteTo(reply, from)
			}
		}
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err == nil {
				raw := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, raw); err == nil {
					reply := s.reply(t, raw, true)
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
				}
			}
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Close()
		running.Wait()
	})
	return s
}

func (s *nameServer) reply(t *testing.T, raw []byte, tcp bool) []byte {
	s.asked.Add(1)
	var m dnsmessage.Message
	if err := m.Unpack(raw); err != nil || len(m.Questions) != 1 {
		t.Errorf("asked with %v, %v", m.GoString(), err)
		return nil
	}
	reply := s.answer(m.Questions[0], tcp)
	if reply == nil {
		return nil
	}
	reply.ID, reply.Response, reply.Questions = m.ID, true, m.Questions
	packed, err := reply.Pack()
	if err != nil {
		t.Error(err)
	}
	return packed
}

func record(q dnsmessage.Question, ttl uint32, last byte) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: ttl},
		Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, last}}}
}

func always(ttl uint32, last byte) func(dnsmessage.Question, bool) *dnsmessage.Message {
	return func(q dnsmessage.Question, _ bool) *dnsmessage.Message {
		return &dnsmessage.Message{Answers: []dnsmessage.Resource{record(q, ttl, last)}}
	}
}

func question(name string) *message.Query {
	return &message.Query{Question: dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}, Limit: 512}
}

// last is the last byte of the first address that is the answer.
func last(t *testing.T, f *Forwarder, name string) int {
	t.Helper()
	reply, age, err := f.Ask(t.Context(), question(name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	all, err := reply.Answers(age)
	if err != nil || len(all) == 0 {
		return -int(reply.RCode())
	}
	return int(all[0].Body.(*dnsmessage.AResource).A[3])
}

func TestForwarder(t *testing.T) {
	good := startNameServer(t, always(60, 1))
	silent := startNameServer(t, func(dnsmessage.Question, bool) *dnsmessage.Message { return nil })
	failing := startNameServer(t, func(dnsmessage.Question, bool) *dnsmessage.Message {
		return &dnsmessage.Message{Header: dnsmessage.Header{RCode: dnsmessage.RCodeServerFailure}}
	})
	long := startNameServer(t, func(q dnsmessage.Question, tcp bool) *dnsmessage.Message {
		m := &dnsmessage.Message{Header: dnsmessage.Header{Truncated: !tcp}}
		if tcp {
			m.Answers = []dnsmessage.Resource{record(q, 60, 7)}
		}
		return m
	})
	ask := func(servers ...netip.AddrPort) *Forwarder { return New(Config{Servers: servers}) }

	f := ask(good.at)
	for range 3 {
		if got := last(t, f, "a.example."); got != 1 {
			t.Errorf("the answer is %d", got)
		}
	}
	if n := good.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	if got := last(t, ask(failing.at, good.at), "b.example."); got != 1 {
		t.Errorf("behind one that fails: %d", got)
	}
	if got := last(t, ask(failing.at), "b.example."); got != -int(dnsmessage.RCodeServerFailure) {
		t.Errorf("only one that fails: %d", got)
	}
	if got := last(t, ask(long.at), "c.example."); got != 7 {
		t.Errorf("a long answer: %d", got)
	}
	f = ask(silent.at, good.at)
	if got := last(t, f, "d.example."); got != 1 {
		t.Errorf("behind a silent one: %d", got)
	}
	before := silent.asked.Load()
	if got := last(t, f, "e.example."); got != 1 || silent.asked.Load() != before {
		t.Errorf("%d; the silent one was asked first again", got)
	}
	if _, _, err := ask(silent.at).Ask(t.Context(), question("f.example.")); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestOneQuestionIsAskedOnce(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{}, 10)
	s := startNameServer(t, func(q dnsmessage.Question, _ bool) *dnsmessage.Message {
		arrived <- struct{}{}
		<-release
		return always(0, 3)(q, false)
	})
	f := New(Config{Servers: []netip.AddrPort{s.at}, MaxUnderWay: 1})
	var all sync.WaitGroup
	var same atomic.Int32
	for range 20 {
		all.Go(func() {
			if reply, _, err := f.Ask(t.Context(), question("a.example.")); err == nil && reply.RCode() == 0 {
				same.Add(1)
			}
		})
	}
	<-arrived
	if _, _, err := f.Ask(t.Context(), question("b.example.")); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	close(release)
	all.Wait()
	if same.Load() != 20 {
		t.Errorf("%d answers", same.Load())
	}
}

func TestResolvConf(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.43.0.10")}
	for raw, want := range map[string]string{
		"":                        "[127.0.0.1:53]",
		"search a b\n":            "[127.0.0.1:53]",
		"nameserver 10.43.0.10\n": "[]",
		"# nameserver 1.1.1.1\nnameserver 192.0.2.1 # x\n nameserver\t2001:db8::1\nnameserver nonsense\nnameserver 10.43.0.10\nnameserver ::ffff:192.0.2.2": "[192.0.2.1:53 [2001:db8::1]:53 192.0.2.2:53]",
		"nameserver 127.0.0.53\noptions edns0": "[127.0.0.53:53]",
	} {
		if got := fmt.Sprint(ParseResolvConf([]byte(raw), own)); got != want {
			t.Errorf("%q: %s, want %s", raw, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	s := servers{file: file}
	if got := s.list(time.Now()); len(got) != 0 {
		t.Errorf("without a file: %v", got)
	}
	for _, server := range []string{"192.0.2.1", "192.0.2.2"} {
		// Replaced, as programs do: the size is the same, and the time may be.
		next := file + ".new"
		if err := errors.Join(os.WriteFile(next, []byte("nameserver "+server+"\n"), 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
		if got := s.list(time.Now()); len(got) != 1 || got[0].Addr().String() != server {
			t.Errorf("with %s: %v", server, got)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	q := question("a.example.")
	raw, err := (&dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{q.Question}, Answers: []dnsmessage.Resource{record(q.Question, 60, 1)}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := message.ReadForeign(raw, q, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := newCache(100, 20<<10)
	key := func(i int) message.Key { return message.Key{Name: fmt.Sprintf("%d.example.", i)} }
	c.put(key(0), reply, now)
	for i := range 1000 {
		c.put(key(i), reply, now)
		if _, _, ok := c.get(key(0), now); !ok {
			t.Fatal("what is asked for went")
		}
		if len(c.entries) > 100 || c.bytes > 20<<10 || c.order.Len() != len(c.entries) {
			t.Fatalf("%d entries of %d bytes", len(c.entries), c.bytes)
		}
	}
	if n := len(c.entries); n < 40 {
		t.Errorf("%d are kept", n)
	}
	if _, age, ok := c.get(key(0), now.Add(59*time.Second)); !ok || age != 59*time.Second {
		t.Errorf("after 59s: %v, %v", age, ok)
	}
	if _, _, ok := c.get(key(0), now.Add(time.Minute)); ok {
		t.Error("kept beyond its time")
	}
	for k := range c.entries {
		c.remove(c.entries[k])
	}
	if c.bytes != 0 || c.order.Len() != 0 {
		t.Errorf("%d bytes in %d entries are left of nothing", c.bytes, c.order.Len())
	}
}
