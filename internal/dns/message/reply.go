package message

import (
	"golang.org/x/net/dns/dnsmessage"
)

// Reply is a reply of our own.
type Reply struct {
	RCode dnsmessage.RCode
	// Authoritative: it is of the cluster's own names.
	Authoritative                  bool
	Answers, Authority, Additional []dnsmessage.Resource
}

// Pack writes a reply of at most limit bytes. What does not fit is left out: additional records without a word; of answers as many
// as there is room for are sent, and the reply says that it is truncated.
func (r *Reply) Pack(q *Query, limit int) ([]byte, error) {
	m := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.ID, Response: true, RCode: r.RCode & 0xf, Authoritative: r.Authoritative, RecursionDesired: q.RecursionDesired, RecursionAvailable: true,
			CheckingDisabled: q.CheckingDisabled,
		},
		Answers: r.Answers, Authorities: r.Authority,
	}
	if q.Question.Type != 0 || q.Question.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{q.Question}
	}
	var opt []dnsmessage.Resource
	if q.EDNS {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(MaxUDP, r.RCode, q.DNSSEC); err != nil {
			return nil, err
		}
		opt = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	m.Additionals = append(append(m.Additionals, r.Additional...), opt...)
	raw, err := m.Pack()
	if err != nil || len(raw) <= limit {
		return raw, err
	}
	m.Additionals = opt
	for raw, err = m.Pack(); err == nil && len(raw) > limit; raw, err = m.Pack() {
		m.Truncated = true
		m.Authorities = nil
		if len(m.Answers) == 0 {
			return raw, nil // a question and its header always fit
		}
		// About as many as fit, and at least one less than before: names are compressed, so that records are of different sizes.
		m.Answers = m.Answers[:min(len(m.Answers)-1, len(m.Answers)*limit/len(raw)+1)]
	}
	return raw, err
}

// Refuse writes what is said to a query that cannot be answered otherwise.
func Refuse(q *Query, code dnsmessage.RCode) ([]byte, error) {
	r := Reply{RCode: code}
	return r.Pack(q, MaxPlain)
}
