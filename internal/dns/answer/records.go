package answer

import (
	"net/netip"
	"slices"

	"golang.org/x/net/dns/dnsmessage"
)

// hostmaster is the mailbox in the SOA, which nobody reads.
const hostmaster = "hostmaster"

func fqdn(name string) (dnsmessage.Name, error) { return dnsmessage.NewName(name + ".") }

// wants says whether records of a type answer the question.
func (a *asking) wants(t dnsmessage.Type) bool {
	return a.question.Type == t || a.question.Type == dnsmessage.TypeALL
}

func (a *asking) wantsFamily(address netip.Addr) bool {
	if address.Is4() {
		return a.wants(dnsmessage.TypeA)
	}
	return a.wants(dnsmessage.TypeAAAA)
}

func (a *asking) record(name dnsmessage.Name, t dnsmessage.Type, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Type: t, Class: dnsmessage.ClassINET, TTL: TTL}, Body: body}
}

func (a *asking) address(name dnsmessage.Name, address netip.Addr) dnsmessage.Resource {
	if address.Is4() {
		return a.record(name, dnsmessage.TypeA, &dnsmessage.AResource{A: address.As4()})
	}
	return a.record(name, dnsmessage.TypeAAAA, &dnsmessage.AAAAResource{AAAA: address.As16()})
}

// addresses are the records of those that the question is for.
func (a *asking) addresses(name dnsmessage.Name, of []netip.Addr) (all []dnsmessage.Resource) {
	for _, address := range of {
		if a.wantsFamily(address) {
			all = append(all, a.address(name, address))
		}
	}
	return all
}

// both are the records of addresses of both families.
func (a *asking) both(name dnsmessage.Name, of []netip.Addr) (all []dnsmessage.Resource) {
	for _, address := range of {
		all = append(all, a.address(name, address))
	}
	return all
}

// addressesOf are the records of a service by its own name.
func (a *asking) addressesOf(name dnsmessage.Name, s *Service) []dnsmessage.Resource {
	if !s.Headless {
		return a.addresses(name, s.Addresses)
	}
	var all []dnsmessage.Resource
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; a.wantsFamily(e.Address) {
			all = append(all, a.address(name, e.Address))
		}
	}
	return a.rotated(distinct(all))
}

func (a *asking) text(s string) dnsmessage.Resource {
	return a.record(a.question.Name, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{s}})
}

// rotated begins with another one each time, for those who take the first.
func (a *asking) rotated(all []dnsmessage.Resource) []dnsmessage.Resource {
	if len(all) < 2 {
		return all
	}
	at := a.rotate % len(all)
	return append(slices.Clone(all[at:]), all[:at]...)
}

// distinct leaves out what is there already.
func distinct(all []dnsmessage.Resource) []dnsmessage.Resource {
	type key struct {
		name    dnsmessage.Name
		address netip.Addr
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(all, func(r dnsmessage.Resource) bool {
		k := key{name: r.Header.Name}
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			k.address = netip.AddrFrom4(body.A)
		case *dnsmessage.AAAAResource:
			k.address = netip.AddrFrom16(body.AAAA)
		default:
			return false
		}
		had := seen[k]
		seen[k] = true
		return had
	})
}

// records is a reply with those records that the question is for; without any it says that the name exists.
func (a *asking) records(all ...dnsmessage.Resource) Reply {
	all = slices.DeleteFunc(all, func(r dnsmessage.Resource) bool { return !a.wants(r.Header.Type) })
	if len(all) == 0 {
		return a.nothing()
	}
	return Reply{Answers: all}
}

// nothing says that the name exists, without records of the type.
func (a *asking) nothing() Reply { return Reply{Authority: a.authority()} }

// missing says that there is no such name.
func (a *asking) missing() Reply {
	return Reply{RCode: dnsmessage.RCodeNameError, Authority: a.authority()}
}

// authority is the SOA of the zone, which says how long it may be believed that something is not there (RFC 2308).
func (a *asking) authority() []dnsmessage.Resource {
	name, err := fqdn(a.soa)
	server, err2 := fqdn(nameserver + "." + dns + "." + a.zone.Domain)
	mailbox, err3 := fqdn(hostmaster + "." + a.zone.Domain)
	if err != nil || err2 != nil || err3 != nil {
		return nil
	}
	return []dnsmessage.Resource{a.record(name, dnsmessage.TypeSOA, &dnsmessage.SOAResource{
		NS: server, MBox: mailbox, Serial: a.view.Serial(), Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: TTL,
	})}
}
