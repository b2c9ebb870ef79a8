// Package message reads and writes messages of DNS (RFC 1035, EDNS: RFC 6891). It is pure.
//
// Replies of our own are made of records; those of other servers are kept and passed on as the bytes that they are (Foreign), with only
// what belongs to the one who asks put in: so types that nobody here knows pass as well.
package message

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Sizes of messages, in bytes.
const (
	// MaxPlain is what a client takes over UDP that says nothing of EDNS.
	MaxPlain = 512
	// MaxUDP is the largest that is sent and asked for over UDP: it passes every network whole (the DNS flag day of 2020).
	MaxUDP = 1232
	// MaxTCP is the largest that there is.
	MaxTCP = 65535
	// MaxQuery is the largest query that is read. Queries have one question and a few options.
	MaxQuery = 4096
	// header is the size of a message's header.
	header = 12
)

// Query is a question of a client.
type Query struct {
	ID       uint16
	Question dnsmessage.Question
	// RecursionDesired and CheckingDisabled are given back as they came.
	RecursionDesired, CheckingDisabled bool
	// EDNS: the client has sent an OPT record, and gets one. DNSSEC: it wants signatures.
	EDNS, DNSSEC bool
	// Limit is the largest reply that the client takes over UDP.
	Limit int
}

// Faults of a query. ErrDrop: it is no query, or so short that nobody can be answered; everything else is a *Refusal.
var ErrDrop = errors.New("no query")

// Refusal is a query that cannot be answered, with what is said to it.
type Refusal struct {
	Query Query
	RCode dnsmessage.RCode
	why   string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("query %d: %s", r.Query.ID, r.why) }

// rcodeBadVersion is of 12 bits, of which the upper 8 are in the OPT record (RFC 6891, section 9).
const rcodeBadVersion dnsmessage.RCode = 16

// Parse reads a query. Its errors are ErrDrop and *Refusal.
func Parse(raw []byte) (Query, error) {
	var p dnsmessage.Parser
	if len(raw) < header {
		return Query{}, ErrDrop
	}
	h, err := p.Start(raw)
	if err != nil || h.Response {
		return Query{}, ErrDrop
	}
	q := Query{ID: h.ID, RecursionDesired: h.RecursionDesired, CheckingDisabled: h.CheckingDisabled, Limit: MaxPlain}
	refuse := func(code dnsmessage.RCode, why string) (Query, error) { return q, &Refusal{q, code, why} }
	if h.OpCode != 0 {
		return refuse(dnsmessage.RCodeNotImplemented, "another operation than QUERY")
	}
	if raw[4] != 0 || raw[5] != 1 {
		return refuse(dnsmessage.RCodeFormatError, "not one question")
	}
	if q.Question, err = p.Question(); err != nil {
		return refuse(dnsmessage.RCodeFormatError, "a question that cannot be read")
	}
	if raw[6]|raw[7]|raw[8]|raw[9] != 0 { // it has answers
		return refuse(dnsmessage.RCodeFormatError, "a query with answers")
	}
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return refuse(dnsmessage.RCodeFormatError, "a query that cannot be read")
	}
	for {
		rh, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return q, nil
		}
		if err != nil {
			return refuse(dnsmessage.RCodeFormatError, "a record that cannot be read")
		}
		if rh.Type == dnsmessage.TypeOPT {
			if q.EDNS || rh.Name.Length != 1 {
				return refuse(dnsmessage.RCodeFormatError, "a wrong OPT record")
			}
			q.EDNS, q.DNSSEC = true, rh.DNSSECAllowed()
			q.Limit = min(max(int(rh.Class), MaxPlain), MaxUDP)
			if version := rh.TTL >> 16 & 0xff; version != 0 {
				return refuse(rcodeBadVersion, "another version of EDNS than 0")
			}
		}
		if err := p.SkipAdditional(); err != nil {
			return refuse(dnsmessage.RCodeFormatError, "a record that cannot be read")
		}
	}
}

// Key tells apart questions that may have different answers.
type Key struct {
	Name             string
	Type             dnsmessage.Type
	Class            dnsmessage.Class
	DNSSEC, Checking bool
}

// Key is the key of a query's question.
func (q *Query) Key() Key {
	return Key{strings.ToLower(q.Question.Name.String()), q.Question.Type, q.Question.Class, q.DNSSEC, !q.CheckingDisabled}
}

// Ask makes a query for others: with EDNS, so that their answers may be larger than 512 bytes.
func (q *Query) Ask(id uint16) ([]byte, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, 128), dnsmessage.Header{ID: id, RecursionDesired: true, CheckingDisabled: q.CheckingDisabled})
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q.Question); err != nil {
		return nil, err
	}
	if err := b.StartAdditionals(); err != nil {
		return nil, err
	}
	var opt dnsmessage.ResourceHeader
	if err := opt.SetEDNS0(MaxUDP, 0, q.DNSSEC); err != nil {
		return nil, err
	}
	if err := b.OPTResource(opt, dnsmessage.OPTResource{}); err != nil {
		return nil, err
	}
	return b.Finish()
}
