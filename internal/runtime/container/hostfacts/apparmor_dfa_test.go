package hostfacts

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// dfa is an automaton of a compiled policy, as the kernel has it (security/apparmor/match.c): which rules a path, or a request written as
// bytes, comes to.
type dfa struct {
	accept, base, chk, def, nxt, classes []uint32
}

// The numbers of an automaton's tables.
const (
	tableAccept = 1 + iota
	tableBase
	tableCheck
	tableDefault
	tableClasses
	_
	_
	tableNext
)

const (
	dfaMagic   = 0x1B5E783D
	diffEncode = 0x80000000 // of base: the state is its default's, but for what it has of its own
)

// automata reads those of a compiled profile: that of paths, and that of all other requests, which comes first.
func automata(t *testing.T, policy []byte) (paths, others *dfa) {
	t.Helper()
	var found []*dfa
	magic := binary.BigEndian.AppendUint32(nil, dfaMagic)
	for at := 0; ; {
		i := bytes.Index(policy[at:], magic)
		if i < 0 {
			break
		}
		found = append(found, readDFA(t, policy[at+i:]))
		at += i + len(magic)
	}
	if len(found) != 2 || !bytes.Contains(policy, []byte("policydb")) {
		t.Fatalf("%d automata in a compiled profile of %d bytes", len(found), len(policy))
	}
	return found[1], found[0]
}

func readDFA(t *testing.T, raw []byte) *dfa {
	t.Helper()
	be := binary.BigEndian
	header, size := be.Uint32(raw[4:]), be.Uint32(raw[8:])
	d := &dfa{}
	for at := header; at+12 <= size; {
		id, width, n := be.Uint16(raw[at:]), uint32(be.Uint16(raw[at+2:])), be.Uint32(raw[at+8:])
		data, values := raw[at+12:], make([]uint32, n)
		for i := range n {
			switch width {
			case 1:
				values[i] = uint32(data[i])
			case 2:
				values[i] = uint32(be.Uint16(data[2*i:]))
			default:
				values[i] = be.Uint32(data[4*i:])
			}
		}
		switch id {
		case tableAccept:
			d.accept = values
		case tableBase:
			d.base = values
		case tableCheck:
			d.chk = values
		case tableDefault:
			d.def = values
		case tableClasses:
			d.classes = values
		case tableNext:
			d.nxt = values
		}
		at += (12 + n*width + 7) &^ 7
	}
	if d.accept == nil || d.base == nil || d.chk == nil || d.def == nil || d.nxt == nil {
		t.Fatal("an automaton lacks a table")
	}
	return d
}

// start is the state before the first byte; state 0 is the one of what matches nothing.
const start = 1

func (d *dfa) step(state uint32, c byte) uint32 {
	in := uint32(c)
	if d.classes != nil {
		in = d.classes[c]
	}
	for {
		base := d.base[state]
		if at := base&0xffffff + in; int(at) < len(d.chk) && d.chk[at] == state {
			return d.nxt[at]
		}
		state = d.def[state]
		if base&diffEncode == 0 {
			return state
		}
	}
}

// pathPermissions are those of a state in the automaton of paths, for the owner of a file or for others.
func pathPermissions(accept uint32) uint32 { return (accept | accept>>14) & 0x7f }

const (
	mayExec = 1 << iota
	mayWrite
	mayRead
	mayAppend
	mayLink
	mayLock
	mayMap
)

func (d *dfa) path(p string) uint32 {
	state := uint32(start)
	for i := range len(p) {
		state = d.step(state, p[i])
	}
	return pathPermissions(d.accept[state])
}

// allowsMore finds something that d allows and other does not, in the order of length, with what more it may do; nil: there is none,
// whatever the length. It follows both automata at once, so it has seen every path when it has seen every pair of states.
func (d *dfa) allowsMore(other *dfa, permissions func(accept uint32) uint32) (what []byte, more uint32) {
	type pair struct{ a, b uint32 }
	type reached struct {
		pair
		by []byte
	}
	queue, seen := []reached{{pair: pair{start, start}}}, map[pair]bool{{start, start}: true}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if more := permissions(d.accept[at.a]) &^ permissions(other.accept[at.b]); more != 0 {
			return at.by, more
		}
		for c := range 256 {
			next := pair{d.step(at.a, byte(c)), other.step(at.b, byte(c))}
			if next.a == 0 || seen[next] {
				continue
			}
			seen[next] = true
			queue = append(queue, reached{next, append(bytes.Clone(at.by), byte(c))})
		}
	}
	return nil, 0
}
