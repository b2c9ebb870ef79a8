package rules

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The kernel's table of connections (nf_conntrack_max entries) is the whole host's, and who fills it keeps everybody from connecting: what can be evicted of it
// are connections that nobody has answered or that are closing, not those that are established, for five days. So a pod's open connections are bounded:
//
//	set open4 { type ipv4_addr . mark; flags dynamic }                  # pod and list; an element counts the connections of its list
//	set full4 { type ipv4_addr; flags dynamic,timeout; timeout 10m }    # pods that are at their bound
//	chain connections {
//	    type filter hook prerouting priority mangle;
//	    iifgroup != <ports> accept
//	    ct status & confirmed != 0 accept                               # only the first packet of a connection is looked at
//	    meta nfproto ipv4 jhash ip daddr . ct original proto-src . ct original proto-dst mod <sampled> == 0 goto counted4
//	    meta nfproto ipv4 ip saddr @full4 counter drop
//	    ...                                                             # the same for IPv6
//	}
//	chain counted4 {
//	    add @open4 { ip saddr . jhash <the same> mod <lists> ct count over <length> } counter update @full4 { ip saddr } drop
//	    delete @full4 { ip saddr }
//	}
//	set open6, full6, chain counted6                                    # the same for IPv6
//
// The kernel counts by a list of connections that it goes through for each new one, to leave out those that have ended: one list of 10,000 costs a new connection
// 0.2 to 1.4 ms. So only one connection of <sampled> is counted, and a pod's counted ones are in lists of which each has about 128 at the bound. Which those are
// is given by a hash of the connection. A list may hold more than the mean, by four times its standard deviation, so that nobody below the bound meets it; who goes on beyond it
// meets it more and more, and passes it at 1.4 times the bound at the latest. From where a list is full nothing of the pod passes until a connection that is counted finds room again.
// A connection that is closed (TIME_WAIT, CLOSE), or whose first packet was dropped, does not count.
//
// Who asks is counted, not who is asked: what comes from outside is not the pod's doing.
const (
	connectionsChain = "connections"
	countedChain     = "counted" // and the family's digit

	// shareOfPod is the default bound: this part of the table's room.
	shareOfPod = 4
	// roomUnknown is taken for the table's room where the kernel does not tell it: connection tracking is not there before the first rule that asks it.
	roomUnknown = 262144
	roomFile    = "/proc/sys/net/netfilter/nf_conntrack_max"
	// takenFile is how many it holds now.
	takenFile = "/proc/sys/net/netfilter/nf_conntrack_count"

	// fullFor is how long a pod is at its bound of which nothing more is heard.
	fullFor = 10 * time.Minute
	// fullPods is the room for those, openLists that for the lists of all pods.
	fullPods  = 4096
	openLists = 1 << 16
)

// bound is how many connections a pod may have open, and how they are counted.
type bound struct {
	connections uint32 // 0: as many as there is room for
	sampled     uint32 // one of so many is counted
	lists       uint32
	length      uint32 // of a list
}

// boundOf is what the configuration (nil: it says nothing) makes of the table's room. It is pure.
func boundOf(configured *int32, room int) bound {
	n := room / shareOfPod
	if configured != nil {
		n = int(*configured)
	}
	if n <= 0 {
		return bound{}
	}
	const mean = 128
	sampled := min(max(n/512, 1), 32)
	lists := max(n/sampled/mean, 1)
	each := float64(n) / float64(sampled) / float64(lists)
	length := math.Ceil(each + 4*math.Sqrt(each))
	if sampled == 1 && lists == 1 {
		length = each // all are in it
	}
	return bound{uint32(n), uint32(sampled), uint32(lists), uint32(length)}
}

// room is how many connections the kernel's table holds.
func room() int {
	if n, ok := numberIn(roomFile); ok && n > 0 {
		return n
	}
	return roomUnknown
}

// numberIn reads a file of the kernel's that holds one number.
func numberIn(path string) (int, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	return n, err == nil
}

// boundSets are the sets of a family.
func (s site) boundSets(fam family) (open, full *nftables.Set) {
	id := 100 + uint32(fam.proto)<<1
	open = &nftables.Set{Table: s.table, ID: id, Name: "open" + fam.digit(), KeyType: nftables.MustConcatSetType(fam.typ, nftables.TypeMark), Dynamic: true, Size: openLists}
	full = &nftables.Set{Table: s.table, ID: id + 1, Name: "full" + fam.digit(), KeyType: fam.typ, Dynamic: true, HasTimeout: true, Timeout: fullFor, Size: fullPods}
	return open, full
}

func (fam family) digit() string { return strings.TrimPrefix(fam.at, "at") }

// boundConnections writes the sets, and the rules into this chain and those for what is counted.
func (s *shape) boundConnections(c *nftables.Chain, b bound) {
	const confirmed = 1 << 3 // IPS_CONFIRMED of linux/netfilter
	accept := verdict(expr.VerdictAccept)
	s.rule(c, s.fromPods(expr.CmpOpNeq), accept)
	s.rule(c, ctBit(expr.CtKeySTATUS, confirmed, expr.CmpOpNeq), accept)
	for _, fam := range families {
		open, full := s.boundSets(fam)
		s.set(open, nil)
		s.set(full, nil)
		counted := s.plain(countedChain + fam.digit())
		source := []expr.Any{&expr.Payload{DestRegister: keyRegister, Base: expr.PayloadBaseNetworkHeader, Offset: fam.src, Len: fam.size}}
		list := uint32(keyRegister) + fam.size/4
		s.rule(c, fam.isFamily(), fam.hash(list, b.sampled, 1), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: list, Data: make([]byte, 4)}},
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: counted.Name}})
		s.rule(c, fam.isFamily(), source, []expr.Any{&expr.Lookup{SourceRegister: keyRegister, SetName: full.Name, SetID: full.ID}}, refused())
		s.rule(counted, source, fam.hash(list, b.lists, 2), []expr.Any{
			&expr.Dynset{SrcRegKey: keyRegister, SetName: open.Name, SetID: open.ID, Operation: unix.NFT_DYNSET_OP_ADD,
				Exprs: []expr.Any{&expr.Connlimit{Count: b.length, Flags: expr.NFT_CONNLIMIT_F_INV}}},
			&expr.Counter{},
			&expr.Dynset{SrcRegKey: keyRegister, SetName: full.Name, SetID: full.ID, Operation: unix.NFT_DYNSET_OP_UPDATE},
		}, verdict(expr.VerdictDrop))
		s.rule(counted, source, []expr.Any{&expr.Dynset{SrcRegKey: keyRegister, SetName: full.Name, SetID: full.ID, Operation: dynsetDelete}})
	}
}

// dynsetDelete takes an element away (NFT_DYNSET_OP_DELETE of linux/netfilter/nf_tables.h).
const dynsetDelete = 2

// hash puts a number below mod, which follows from the connection, into a register. It uses those behind it.
func (fam family) hash(register, mod, seed uint32) []expr.Any {
	is := register + 1
	ports := is + fam.size/4
	return []expr.Any{
		&expr.Payload{DestRegister: is, Base: expr.PayloadBaseNetworkHeader, Offset: fam.dst, Len: fam.size},
		&expr.Ct{Key: expr.CtKeyPROTOSRC, Register: ports},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: ports + 1},
		&expr.Hash{SourceRegister: is, DestRegister: register, Length: fam.size + 8, Modulus: mod, Seed: seed, Type: expr.HashTypeJenkins},
	}
}

// boundMissing says what a host whose kernel cannot count connections does not have.
const boundMissing = "a pod can fill the host's table of connections: the kernel cannot count them by pod (CONFIG_NFT_CONNLIMIT, CONFIG_NFT_HASH; modprobe -a nft_connlimit nft_hash)"

// Crowded says that the kernel's table of connections holds as much as one pod may have there.
func Crowded() bool {
	n, ok := numberIn(takenFile)
	return ok && n >= room()/shareOfPod
}
