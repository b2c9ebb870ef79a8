package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Foreign is a reply of another server, as it came. Only what belongs to one asker is taken off: its OPT record.
type Foreign struct {
	raw []byte
	// records are where the records of the message begin, with their sections; the last one is its end.
	records []mark
	// rcode has the upper bits of EDNS, too.
	rcode dnsmessage.RCode
	// Keep is for how long it may be kept; 0: not at all.
	Keep time.Duration
}

// mark is a place in a message.
type mark struct {
	at, ttl uint16 // the record, and its TTL
	section byte   // 0 answers, 1 authority, 2 additional
}

// Truncated: the server had more to say, and has to be asked over TCP.
func Truncated(raw []byte) bool { return len(raw) >= header && raw[2]&0x02 != 0 }

// How long replies are kept at most, and those that something is not there. A failure is kept for a moment (RFC 9520), so that
// nobody who asks again and again has the servers asked as often.
const (
	maxKeep         = time.Hour
	maxKeepNegative = 15 * time.Minute
	keepFailure     = 2 * time.Second
)

var errForeign = errors.New("the reply cannot be read")

// ReadForeign reads a reply to a query that was sent with this id. An error says that it is none.
func ReadForeign(raw []byte, q *Query, id uint16) (*Foreign, error) {
	if len(raw) < header || len(raw) > MaxTCP {
		return nil, fmt.Errorf("%w: it has %d bytes", errForeign, len(raw))
	}
	var p dnsmessage.Parser
	h, err := p.Start(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	if !h.Response || h.ID != id || h.OpCode != 0 {
		return nil, fmt.Errorf("%w: it is no reply to the query", errForeign)
	}
	f := &Foreign{raw: raw, rcode: h.RCode}
	at := header
	switch binary.BigEndian.Uint16(raw[4:]) {
	case 0:
		if h.RCode == dnsmessage.RCodeSuccess || h.RCode == dnsmessage.RCodeNameError {
			return nil, fmt.Errorf("%w: it does not repeat the question", errForeign)
		}
		// Some servers leave the question out when they refuse it: nothing else of it counts.
		return &Foreign{rcode: h.RCode, Keep: keepFailure}, nil
	case 1:
		question, err := p.Question()
		if err != nil || question.Type != q.Question.Type || question.Class != q.Question.Class ||
			!strings.EqualFold(question.Name.String(), q.Question.Name.String()) {
			return nil, fmt.Errorf("%w: it is to another question", errForeign)
		}
		begin := at
		if at, err = skipName(raw, at); err != nil {
			return nil, err
		}
		if length := at - begin; length != int(question.Name.Length)+1 && (length != 1 || question.Name.Length != 1) {
			return nil, fmt.Errorf("%w: the question's name is compressed, and there is nothing before it", errForeign)
		}
		at += 4 // type and class
	default:
		return nil, fmt.Errorf("%w: it has several questions", errForeign)
	}
	if err := f.walk(at); err != nil {
		return nil, err
	}
	f.keep()
	return f, nil
}

// walk finds the records, and takes the OPT record away.
func (f *Foreign) walk(at int) error {
	raw := f.raw
	for section := range byte(3) {
		for range binary.BigEndian.Uint16(raw[6+2*int(section):]) {
			begin := at
			var err error
			if at, err = skipName(raw, at); err != nil {
				return err
			}
			if at+10 > len(raw) || at+10+int(binary.BigEndian.Uint16(raw[at+8:])) > len(raw) {
				return fmt.Errorf("%w: it ends in a record", errForeign)
			}
			end := at + 10 + int(binary.BigEndian.Uint16(raw[at+8:]))
			if dnsmessage.Type(binary.BigEndian.Uint16(raw[at:])) == dnsmessage.TypeOPT && section == 2 {
				// What is behind it, if anything is, may be left out: it is additional.
				f.rcode |= dnsmessage.RCode(raw[at+4]) << 4
				f.raw = bytes.Clone(raw[:begin])
				f.records = append(f.records, mark{at: uint16(begin)})
				return nil
			}
			f.records = append(f.records, mark{at: uint16(begin), ttl: uint16(at + 4), section: section}) // at most 65535
			at = end
		}
	}
	f.raw = bytes.Clone(raw[:at])
	f.records = append(f.records, mark{at: uint16(at)}) // at most 65535
	return nil
}

// skipName returns where the name at a place ends.
func skipName(raw []byte, at int) (int, error) {
	for at < len(raw) {
		switch length := int(raw[at]); {
		case length == 0:
			return at + 1, nil
		case length >= 0xc0: // the rest is elsewhere
			return at + 2, nil
		case length > 63:
			return 0, fmt.Errorf("%w: a wrong name", errForeign)
		default:
			at += 1 + length
		}
	}
	return 0, fmt.Errorf("%w: it ends in a name", errForeign)
}

// keep says for how long the reply may be kept.
func (f *Foreign) keep() {
	n := len(f.records) - 1
	answers := n > 0 && f.records[0].section == 0
	switch {
	case Truncated(f.raw):
		f.Keep = 0
	case f.rcode != dnsmessage.RCodeSuccess && f.rcode != dnsmessage.RCodeNameError:
		f.Keep = keepFailure
	case f.rcode == dnsmessage.RCodeSuccess && answers && !f.onlyAliases():
		least := uint32(maxKeep / time.Second)
		for _, m := range f.records[:n] {
			least = min(least, f.ttl(m))
		}
		f.Keep = time.Duration(least) * time.Second
	default:
		f.Keep = f.negative()
	}
}

// onlyAliases says that the answers are CNAMEs, which lead to nothing unless they were asked for.
func (f *Foreign) onlyAliases() bool {
	asked := dnsmessage.Type(0)
	if at := int(f.records[0].at); at >= 4 {
		asked = dnsmessage.Type(binary.BigEndian.Uint16(f.raw[at-4:]))
	}
	for _, m := range f.records[:len(f.records)-1] {
		if t := f.typeOf(m); m.section == 0 && (t != dnsmessage.TypeCNAME || asked == dnsmessage.TypeCNAME || asked == dnsmessage.TypeALL) {
			return false
		}
	}
	return true
}

// negative is for how long it may be believed that something is not there: as the SOA says (RFC 2308, section 5); without one not at
// all.
func (f *Foreign) negative() time.Duration {
	n := len(f.records) - 1
	least := uint32(maxKeepNegative / time.Second)
	found := false
	for i, m := range f.records[:n] {
		if m.section > 1 {
			break
		}
		least = min(least, f.ttl(m))
		if end := int(f.records[i+1].at); f.typeOf(m) == dnsmessage.TypeSOA && m.section == 1 && end-int(m.ttl) >= 4+2+22 {
			found, least = true, min(least, binary.BigEndian.Uint32(f.raw[end-4:])) // its last field
		}
	}
	if !found {
		return 0
	}
	return time.Duration(least) * time.Second
}

func (f *Foreign) typeOf(m mark) dnsmessage.Type {
	return dnsmessage.Type(binary.BigEndian.Uint16(f.raw[m.ttl-4:]))
}

// ttl is a record's; one with the highest bit is 0 (RFC 2181, section 8).
func (f *Foreign) ttl(m mark) uint32 {
	if t := binary.BigEndian.Uint32(f.raw[m.ttl:]); t>>31 == 0 {
		return t
	}
	return 0
}

// RCode is what the server said.
func (f *Foreign) RCode() dnsmessage.RCode { return f.rcode }

// Failed: the server could or would not say, and another one may.
func (f *Foreign) Failed() bool {
	return f.rcode != dnsmessage.RCodeSuccess && f.rcode != dnsmessage.RCodeNameError
}

// Size is about how much memory it takes, in bytes.
func (f *Foreign) Size() int { return len(f.raw) + 6*len(f.records) + 64 }
