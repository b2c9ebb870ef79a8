// Package answer is what the cluster's DNS says to a question, by Kubernetes' DNS specification 1.1
// (github.com/kubernetes/dns, docs/specification.md). It is pure: a question and a view of the cluster give a reply.
//
// Names in the cluster's domain, and the reverse names of services' addresses, are all answered from the view: with records, with
// NXDOMAIN, or with no records where the name exists (as the parent of other names, or with other types only: RFC 8020). What nobody here
// knows is left to others: Reply.Outcome says so.
package answer

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// TTL is for how many seconds answers of the cluster may be kept, also that there is none.
const TTL = 5

// Version is that of the specification, which the name dns-version tells.
const Version = "1.1.0"

// Types that the library has no names for.
const (
	typeIXFR dnsmessage.Type = 251
	typeAXFR dnsmessage.Type = 252
)

// View is what is known of the cluster. Names are in lower case.
type View interface {
	// Service returns a service that has names; nil: there is none. What it points to is not changed.
	Service(namespace, name string) *Service
	// HasNamespace says whether a namespace has such a service.
	HasNamespace(namespace string) bool
	// NamesOf returns the names, relative to the cluster's domain, of what has this address: services, and endpoints of headless ones.
	NamesOf(address netip.Addr) []string
	// Serial changes when anything does.
	Serial() uint32
}

// Service is a service as DNS shows it.
type Service struct {
	// External is the name of which the service is an alias (ExternalName); the rest is empty then.
	External string
	// Headless: it has no address of its own, but its endpoints'.
	Headless bool
	// Addresses are its own, Ports the named ones.
	Addresses []netip.Addr
	Ports     []Port
	// Endpoints are those that may be told of a headless service.
	Endpoints []Endpoint
}

// Port is a port with a name. Protocol is in lower case: tcp, udp, sctp.
type Port struct {
	Name, Protocol string
	Number         uint16
}

// Endpoint is an endpoint of a headless service.
type Endpoint struct {
	Address netip.Addr
	// Hostname is its name in the service's; empty: its address with dashes.
	Hostname string
	// Ports are shared with the other endpoints of its slice.
	Ports []Port
}

// Label is the endpoint's name in its service.
func (e *Endpoint) Label() string {
	if e.Hostname != "" {
		return e.Hostname
	}
	return Dashed(e.Address)
}

// Dashed is an address as a label: 10-0-0-1, fd00--1.
func Dashed(a netip.Addr) string {
	s := strings.NewReplacer(".", "-", ":", "-").Replace(a.String())
	// A label neither begins nor ends with a dash (RFC 1123).
	if strings.HasPrefix(s, "-") {
		s = "0" + s
	}
	if strings.HasSuffix(s, "-") {
		s += "0"
	}
	return s
}

// undashed reads an address from a label. There may be several ways to write one.
func undashed(label string) (netip.Addr, bool) {
	separator := ":"
	if strings.Count(label, "-") == 3 && !strings.ContainsAny(label, "abcdef") && !strings.Contains(label, "--") {
		separator = "."
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator))
	return a, err == nil
}

// Zone is what is answered for.
type Zone struct {
	// Domain is the cluster's, in lower case and without the last dot: cluster.local.
	Domain string
	// Services are the ranges of services' addresses, whose reverse names are answered for.
	Services []netip.Prefix
	// Servers are the addresses of this DNS.
	Servers []netip.Addr
}

// Outcome says what a reply is.
type Outcome int

const (
	// Answered: it is complete.
	Answered Outcome = iota
	// Elsewhere: the name is not the cluster's, and others are to be asked. The reply is empty.
	Elsewhere
	// Alias: the answers end with an alias of a name that is not the cluster's (Target); what others say of that belongs behind them.
	Alias
	// PodAddress: the name is of a pod with the address Pod in Namespace. The answers are right if there is one; else Missing is to be said.
	PodAddress
)

// Reply is what is said to a question.
type Reply struct {
	Outcome Outcome
	RCode   dnsmessage.RCode
	Answers []dnsmessage.Resource
	// Authority is the SOA of what is not there, Additional the addresses of what the answers name.
	Authority, Additional []dnsmessage.Resource

	Target    string
	Pod       netip.Addr
	Namespace string
}

// Answer answers a question. rotate chooses which of several answers is the first.
func (z *Zone) Answer(q dnsmessage.Question, v View, rotate uint16) Reply {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	a := &asking{zone: z, view: v, question: q, rotate: int(rotate)}
	if q.Type == typeAXFR || q.Type == typeIXFR {
		return Reply{RCode: dnsmessage.RCodeRefused}
	}
	if q.Class != dnsmessage.ClassINET && q.Class != dnsmessage.ClassANY {
		return Reply{RCode: dnsmessage.RCodeRefused}
	}
	if labels, ok := z.relative(name); ok {
		a.soa = z.Domain
		return a.forward(labels)
	}
	if address, ok := reverse(name); ok {
		return a.reverse(address)
	}
	return Reply{Outcome: Elsewhere}
}

// relative are the labels of a name before the domain.
func (z *Zone) relative(name string) (labels []string, ok bool) {
	if name == z.Domain {
		return nil, true
	}
	rest, ok := strings.CutSuffix(name, "."+z.Domain)
	if !ok {
		return nil, false
	}
	return strings.Split(rest, "."), true
}

// Missing is the reply for a name of the cluster that does not exist.
func (z *Zone) Missing(v View) Reply {
	a := &asking{zone: z, view: v, soa: z.Domain}
	return a.missing()
}
