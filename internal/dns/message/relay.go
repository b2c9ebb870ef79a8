package message

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Relay writes the reply for a client that asks the same, of at most limit bytes, when it is so old.
func (f *Foreign) Relay(q *Query, limit int, age time.Duration) ([]byte, error) {
	own := Reply{RCode: f.rcode}
	if len(f.records) == 0 {
		return own.Pack(q, limit)
	}
	// The head, with the client's own spelling of the name, is that of a reply without records.
	bare := *q
	bare.EDNS = false
	raw, err := own.Pack(&bare, limit)
	if err != nil {
		return nil, err
	}
	first := int(f.records[0].at)
	if len(raw) != first {
		return nil, errForeign // of another question
	}
	const authentic = 0x20 // the AD bit, which is for those who ask for signatures
	raw[2] |= f.raw[2] & 0x02
	if q.DNSSEC {
		raw[3] |= f.raw[3] & authentic
	}
	room := limit - sizeOPT(q)
	whole := len(f.records) - 1
	for whole > 0 && int(f.records[whole].at) > room {
		whole--
	}
	if whole < len(f.records)-1 && f.records[whole].section < 2 {
		raw[2] |= 0x02 // truncated; what is additional may be left out
	}
	raw = append(raw, f.raw[first:f.records[whole].at]...)
	var counts [3]uint16
	seconds := uint32(max(0, min(age, maxKeep)) / time.Second) // at most an hour
	for _, m := range f.records[:whole] {
		counts[m.section]++
		ttl := f.ttl(m)
		binary.BigEndian.PutUint32(raw[m.ttl:], ttl-min(ttl, seconds))
	}
	if q.EDNS {
		counts[2]++
		opt := [11]byte{0, 0, byte(dnsmessage.TypeOPT), MaxUDP >> 8, MaxUDP & 0xff, byte(f.rcode >> 4)}
		if q.DNSSEC {
			opt[7] = 0x80
		}
		raw = append(raw, opt[:]...)
	}
	for i, n := range counts {
		binary.BigEndian.PutUint16(raw[6+2*i:], n)
	}
	return raw, nil
}

func sizeOPT(q *Query) int {
	if q.EDNS {
		return 11
	}
	return 0
}

// Answers are the records of the answers, of the types that clients ask aliases for.
func (f *Foreign) Answers(age time.Duration) ([]dnsmessage.Resource, error) {
	if len(f.records) == 0 {
		return nil, nil
	}
	var p dnsmessage.Parser
	if _, err := p.Start(f.raw); err != nil {
		return nil, err
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, err
	}
	all, err := p.AllAnswers()
	if err != nil && !errors.Is(err, dnsmessage.ErrSectionDone) {
		return nil, err
	}
	seconds := uint32(max(0, min(age, maxKeep)) / time.Second) // at most an hour
	for i := range all {
		all[i].Header.TTL -= min(all[i].Header.TTL, seconds)
	}
	return all, nil
}
