package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func name(s string) dnsmessage.Name { return dnsmessage.MustNewName(s) }

func aRecord(n string, ttl uint32, ip string) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name(n), Class: dnsmessage.ClassINET, TTL: ttl, Type: dnsmessage.TypeA},
		Body: &dnsmessage.AResource{A: netip.MustParseAddr(ip).As4()}}
}

func soaRecord(ttl, least uint32) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name("example.com."), Class: dnsmessage.ClassINET, TTL: ttl, Type: dnsmessage.TypeSOA},
		Body: &dnsmessage.SOAResource{NS: name("ns.example.com."), MBox: name("h.example.com."), MinTTL: least}}
}

func opt(size int, code dnsmessage.RCode) dnsmessage.Resource {
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(size, code, false); err != nil {
		panic(err)
	}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{}}
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	raw, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func question(n string, typ dnsmessage.Type) dnsmessage.Question {
	return dnsmessage.Question{Name: name(n), Type: typ, Class: dnsmessage.ClassINET}
}

func query(t testing.TB, n string, more ...dnsmessage.Resource) []byte {
	return pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true}, Questions: []dnsmessage.Question{question(n, dnsmessage.TypeA)}, Additionals: more})
}

func TestParse(t *testing.T) {
	q, err := Parse(query(t, "Example.com."))
	if err != nil || q.ID != 77 || !q.RecursionDesired || q.EDNS || q.Limit != MaxPlain || q.Key().Name != "example.com." {
		t.Errorf("%+v, %v", q, err)
	}
	for size, want := range map[int]int{100: MaxPlain, 800: 800, 65000: MaxUDP} {
		if q, err := Parse(query(t, "a.", opt(size, 0))); err != nil || !q.EDNS || q.Limit != want {
			t.Errorf("EDNS with %d: %+v, %v", size, q, err)
		}
	}
	good := query(t, "a.")
	changed := func(at int, b byte) []byte {
		raw := append([]byte{}, good...)
		raw[at] = b
		return raw
	}
	version := query(t, "a.", opt(1232, 0))
	version[len(version)-5] = 1
	for what, c := range map[string]struct {
		raw  []byte
		code dnsmessage.RCode
	}{
		"an update":      {changed(2, 5<<3), dnsmessage.RCodeNotImplemented},
		"no question":    {changed(5, 0), dnsmessage.RCodeFormatError},
		"two questions":  {changed(5, 2), dnsmessage.RCodeFormatError},
		"an answer":      {changed(7, 1), dnsmessage.RCodeFormatError},
		"cut":            {good[:len(good)-1], dnsmessage.RCodeFormatError},
		"a lost record":  {changed(11, 1), dnsmessage.RCodeFormatError},
		"EDNS version 1": {version, rcodeBadVersion},
		"two OPTs":       {query(t, "a.", opt(1232, 0), opt(1232, 0)), dnsmessage.RCodeFormatError},
	} {
		_, err := Parse(c.raw)
		var r *Refusal
		if !errors.As(err, &r) || r.RCode != c.code || r.Query.ID != 77 {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if raw, err := Refuse(&r.Query, r.RCode); err != nil || binary.BigEndian.Uint16(raw) != 77 {
			t.Errorf("%s cannot be refused: %v", what, err)
		}
	}
	for what, raw := range map[string][]byte{"a reply": changed(2, 0x80), "nothing": nil, "a part of a header": good[:11]} {
		if _, err := Parse(raw); !errors.Is(err, ErrDrop) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPackLeavesOut(t *testing.T) {
	q, err := Parse(query(t, "many.svc.", opt(1232, 0)))
	if err != nil {
		t.Fatal(err)
	}
	r := Reply{Authoritative: true}
	for i := range 200 {
		r.Answers = append(r.Answers, aRecord("many.svc.", 5, fmt.Sprintf("10.0.0.%d", i)))
	}
	raw, err := r.Pack(&q, q.Limit)
	var m dnsmessage.Message
	if err != nil || m.Unpack(raw) != nil || !m.Truncated || len(raw) > q.Limit || len(m.Answers) < 60 || len(m.Additionals) != 1 {
		t.Errorf("%d answers in %d bytes, truncated %v, %v", len(m.Answers), len(raw), m.Truncated, err)
	}
	if raw, err = r.Pack(&q, MaxTCP); err != nil || m.Unpack(raw) != nil || m.Truncated || len(m.Answers) != 200 {
		t.Errorf("over TCP: %d answers, truncated %v, %v", len(m.Answers), m.Truncated, err)
	}
}

// foreign is a reply to the query.
func foreign(t testing.TB, q *Query, change func(*dnsmessage.Message)) (*Foreign, error) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 9, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q.Question}}
	change(&m)
	return ReadForeign(pack(t, m), q, 9)
}

func TestForeignIsKept(t *testing.T) {
	q, err := Parse(query(t, "www.example.com."))
	if err != nil {
		t.Fatal(err)
	}
	cname := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name("www.example.com."), Class: dnsmessage.ClassINET, TTL: 40, Type: dnsmessage.TypeCNAME},
		Body: &dnsmessage.CNAMEResource{CNAME: name("x.example.com.")}}
	for what, c := range map[string]struct {
		change func(*dnsmessage.Message)
		keep   time.Duration
	}{
		"the least TTL": {func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{aRecord("www.example.com.", 60, "192.0.2.1"), aRecord("www.example.com.", 30, "192.0.2.2")}
		}, 30 * time.Second},
		"for ever": {func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{aRecord("www.example.com.", 1<<30, "192.0.2.1")}
		}, maxKeep},
		"a TTL of 2^31": {func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{aRecord("www.example.com.", 1<<31, "192.0.2.1")}
		}, 0},
		"truncated": {func(m *dnsmessage.Message) {
			m.Truncated = true
			m.Answers = []dnsmessage.Resource{aRecord("www.example.com.", 60, "192.0.2.1")}
		}, 0},
		"no such name": {func(m *dnsmessage.Message) {
			m.RCode = dnsmessage.RCodeNameError
			m.Authorities = []dnsmessage.Resource{soaRecord(100, 20)}
		}, 20 * time.Second},
		"no such records": {func(m *dnsmessage.Message) { m.Authorities = []dnsmessage.Resource{soaRecord(10, 20)} }, 10 * time.Second},
		"no SOA":          {func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }, 0},
		"an alias only": {func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{cname}
			m.Authorities = []dnsmessage.Resource{soaRecord(90, 70)}
		}, 40 * time.Second},
		"a failure":        {func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }, keepFailure},
		"a failure by OPT": {func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(1232, 16)} }, keepFailure},
	} {
		f, err := foreign(t, &q, c.change)
		if err != nil || f.Keep != c.keep {
			t.Errorf("%s: %+v, %v; want %v", what, f, err, c.keep)
		}
	}
	for what, change := range map[string]func(*dnsmessage.Message){
		"another id":       func(m *dnsmessage.Message) { m.ID = 8 },
		"a query":          func(m *dnsmessage.Message) { m.Response = false },
		"another name":     func(m *dnsmessage.Message) { m.Questions[0].Name = name("www.example.net.") },
		"another type":     func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA },
		"without question": func(m *dnsmessage.Message) { m.Questions = nil },
	} {
		if f, err := foreign(t, &q, change); err == nil {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

func TestRelay(t *testing.T) {
	first, err := Parse(query(t, "www.example.com.", opt(1232, 0)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := foreign(t, &first, func(m *dnsmessage.Message) {
		for i := range 40 {
			m.Answers = append(m.Answers, aRecord("www.example.com.", uint32(60+i), "192.0.2.1"))
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name("www.example.com."), Class: dnsmessage.ClassINET, TTL: 70, Type: 4711},
			Body: &dnsmessage.UnknownResource{Type: 4711, Data: []byte("whatever")}})
		m.Additionals = []dnsmessage.Resource{opt(4096, 0), aRecord("behind.example.com.", 60, "192.0.2.9")}
	})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Parse(query(t, "WWW.example.COM."))
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	raw, err := f.Relay(&other, MaxTCP, 61*time.Second)
	if err != nil || m.Unpack(raw) != nil || len(m.Answers) != 41 || m.ID != 77 || m.Truncated || len(m.Additionals) != 0 || m.Questions[0].Name.String() != "WWW.example.COM." {
		t.Fatalf("%v %+v", err, m.Header)
	}
	if m.Answers[0].Header.TTL != 0 || m.Answers[3].Header.TTL != 2 || m.Answers[0].Header.Name.String() != "WWW.example.COM." {
		t.Errorf("the first answers are %v and %v", m.Answers[0].Header, m.Answers[3].Header)
	}
	if raw, err = f.Relay(&other, other.Limit, 0); err != nil || m.Unpack(raw) != nil || !m.Truncated || len(raw) > MaxPlain || len(m.Answers) < 20 {
		t.Errorf("in 512 bytes: %d answers in %d, truncated %v, %v", len(m.Answers), len(raw), m.Truncated, err)
	}
	if raw, err = f.Relay(&first, first.Limit, 0); err != nil || m.Unpack(raw) != nil || m.Truncated || len(m.Additionals) != 1 {
		t.Errorf("with EDNS: %+v, %v", m.Header, err)
	}
	if all, err := f.Answers(10 * time.Second); err != nil || len(all) != 41 || all[0].Header.TTL != 50 {
		t.Errorf("answers: %d, %v", len(all), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(query(f, "a."))
	f.Add(query(f, "www.example.com.", opt(1232, 0)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := Parse(raw)
		var r *Refusal
		if errors.As(err, &r) {
			q = r.Query
		} else if err != nil {
			return
		}
		reply, err := Refuse(&q, dnsmessage.RCodeServerFailure)
		if err != nil || len(reply) > MaxPlain {
			t.Fatalf("%+v cannot be answered: %d bytes, %v", q, len(reply), err)
		}
	})
}

func FuzzForeign(f *testing.F) {
	q := Query{ID: 1, Question: question("www.example.com.", dnsmessage.TypeA), Limit: MaxPlain}
	seed := dnsmessage.Message{Header: dnsmessage.Header{ID: 9, Response: true}, Questions: []dnsmessage.Question{q.Question},
		Answers: []dnsmessage.Resource{aRecord("www.example.com.", 60, "192.0.2.1")}, Authorities: []dnsmessage.Resource{soaRecord(1, 2)}, Additionals: []dnsmessage.Resource{opt(1232, 0)}}
	f.Add(pack(f, seed))
	f.Fuzz(func(t *testing.T, raw []byte) {
		reply, err := ReadForeign(raw, &q, 9)
		if err != nil {
			return
		}
		for _, limit := range []int{MaxPlain, MaxTCP} {
			sent, err := reply.Relay(&q, limit, time.Second)
			if err != nil || len(sent) > limit {
				t.Fatalf("%d bytes of %d, %v", len(sent), limit, err)
			}
			var p dnsmessage.Parser
			if _, err := p.Start(sent); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = reply.Answers(time.Second) // it may be what cannot be read
	})
}
