package answer

import (
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// asking is one question on its way to an answer.
type asking struct {
	zone     *Zone
	view     View
	question dnsmessage.Question
	rotate   int
	// soa is the name of the zone that the question is in.
	soa string
}

// The labels under the domain.
const (
	svc        = "svc"
	pod        = "pod"
	dns        = "dns"
	nameserver = "ns"
	dnsVersion = "dns-version"
)

// maxAliases bounds how many aliases in the cluster are followed.
const maxAliases = 8

// forward answers for a name of the domain, which consists of these labels before it.
func (a *asking) forward(labels []string) Reply {
	n := len(labels)
	switch {
	case n == 0:
		return a.apex()
	case n == 1 && labels[0] == dnsVersion:
		return a.records(a.text(Version))
	case n == 2 && labels[0] == nameserver && labels[1] == dns:
		return a.records(a.addresses(a.question.Name, a.zone.Servers)...)
	case n == 1 && (labels[0] == dns || labels[0] == svc || labels[0] == pod):
		return a.nothing() // it is there for what is below
	case labels[n-1] == pod:
		return a.pod(labels[:n-1])
	case labels[n-1] == svc:
		return a.inServices(labels[:n-1], maxAliases)
	}
	return a.missing()
}

func (a *asking) apex() Reply {
	server := nameserver + "." + dns + "." + a.zone.Domain
	var all []dnsmessage.Resource
	if a.wants(dnsmessage.TypeNS) {
		if target, err := fqdn(server); err == nil {
			all = append(all, a.record(a.question.Name, dnsmessage.TypeNS, &dnsmessage.NSResource{NS: target}))
		}
	}
	if a.wants(dnsmessage.TypeSOA) {
		all = append(all, a.authority()...)
	}
	r := a.records(all...)
	if name, err := fqdn(server); err == nil && a.question.Type == dnsmessage.TypeNS {
		r.Additional = a.both(name, a.zone.Servers)
	}
	return r
}

// inServices answers for SERVICE.NAMESPACE, and for what is below and above.
func (a *asking) inServices(labels []string, aliases int) Reply {
	n := len(labels)
	namespace := labels[n-1]
	if n == 1 {
		if a.view.HasNamespace(namespace) {
			return a.nothing()
		}
		return a.missing()
	}
	s := a.view.Service(namespace, labels[n-2])
	switch {
	case s == nil:
		return a.missing()
	case n == 2 && s.External != "":
		return a.alias(s.External, aliases)
	case n == 2:
		return a.service(s, labels)
	case s.External != "":
		return a.missing()
	case n == 3 && strings.HasPrefix(labels[0], "_"):
		return a.protocol(s, labels[0])
	case n == 3:
		return a.endpoint(s, labels)
	case n == 4 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_"):
		return a.port(s, labels)
	}
	return a.missing()
}

// service answers for SERVICE.NAMESPACE.svc.
func (a *asking) service(s *Service, labels []string) Reply {
	if s.Headless && len(s.Endpoints) == 0 {
		return a.missing() // so the specification says
	}
	all := a.addressesOf(a.question.Name, s)
	if a.wants(dnsmessage.TypeSRV) && a.question.Type != dnsmessage.TypeALL {
		// All named ports at once, which the specification does not ask for, and clients of etcd and others do.
		ports := s.Ports
		if s.Headless {
			ports = nil
			for i := range s.Endpoints {
				for _, p := range s.Endpoints[i].Ports {
					if !slices.Contains(ports, p) {
						ports = append(ports, p)
					}
				}
			}
		}
		r := a.records()
		for _, p := range ports {
			more := a.srv(s, p.Name, p.Protocol, labels)
			r.Answers, r.Additional = append(r.Answers, more.Answers...), append(r.Additional, more.Additional...)
		}
		if len(r.Answers) > 0 {
			r.Authority = nil
		}
		r.Additional = distinct(r.Additional)
		return r
	}
	return a.records(all...)
}

// protocol answers for _PROTOCOL.SERVICE.NAMESPACE.svc, which has no records, and exists when there is a port below it.
func (a *asking) protocol(s *Service, label string) Reply {
	has := func(ports []Port) bool {
		return slices.ContainsFunc(ports, func(p Port) bool { return "_"+p.Protocol == label })
	}
	if has(s.Ports) || slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return has(e.Ports) }) {
		return a.nothing()
	}
	return a.missing()
}

// port answers for _PORT._PROTOCOL.SERVICE.NAMESPACE.svc.
func (a *asking) port(s *Service, labels []string) Reply {
	r := a.srv(s, labels[0][1:], labels[1][1:], labels[2:])
	if len(r.Answers) == 0 {
		return a.missing()
	}
	if !a.wants(dnsmessage.TypeSRV) {
		return a.nothing()
	}
	return r
}

// srv are the SRV records of a port by the name of the question; labels are those of the service.
func (a *asking) srv(s *Service, port, protocol string, labels []string) (r Reply) {
	under := strings.Join(labels, ".") + "." + svc + "." + a.zone.Domain
	add := func(to dnsmessage.Name, number uint16) {
		r.Answers = append(r.Answers, a.record(a.question.Name, dnsmessage.TypeSRV, &dnsmessage.SRVResource{Port: number, Target: to}))
	}
	if !s.Headless {
		for _, p := range s.Ports {
			if p.Name != port || p.Protocol != protocol {
				continue
			}
			if to, err := fqdn(under); err == nil {
				add(to, p.Number)
				r.Additional = a.both(to, s.Addresses)
			}
		}
		return r
	}
	type target struct {
		name   dnsmessage.Name
		number uint16
	}
	seen := map[target]bool{} // an endpoint with addresses of both families has one name
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, p := range e.Ports {
			if p.Name != port || p.Protocol != protocol {
				continue
			}
			to, err := fqdn(e.Label() + "." + under)
			if err != nil {
				continue
			}
			if one := (target{to, p.Number}); !seen[one] {
				seen[one] = true
				add(to, p.Number)
			}
			r.Additional = append(r.Additional, a.address(to, e.Address))
		}
	}
	r.Answers = a.rotated(r.Answers)
	r.Additional = distinct(r.Additional)
	return r
}

// endpoint answers for ENDPOINT.SERVICE.NAMESPACE.svc.
func (a *asking) endpoint(s *Service, labels []string) Reply {
	var all []dnsmessage.Resource
	found := false
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		// One with a name is known by its address, too: who has the address need not know the name.
		if e.Label() != labels[0] && Dashed(e.Address) != labels[0] {
			continue
		}
		found = true
		if a.wantsFamily(e.Address) {
			all = append(all, a.address(a.question.Name, e.Address))
		}
	}
	if !found {
		return a.missing()
	}
	return a.records(a.rotated(distinct(all))...)
}

// alias answers with a CNAME, and with what it leads to as far as that is the cluster's.
func (a *asking) alias(target string, left int) Reply {
	target = strings.TrimSuffix(target, ".")
	to, err := fqdn(target)
	if err != nil || left == 0 {
		return Reply{RCode: dnsmessage.RCodeServerFailure}
	}
	cname := a.record(a.question.Name, dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: to})
	if a.question.Type == dnsmessage.TypeCNAME || a.question.Type == dnsmessage.TypeALL {
		return Reply{Answers: []dnsmessage.Resource{cname}}
	}
	labels, ok := a.zone.relative(strings.ToLower(target))
	if !ok {
		return Reply{Outcome: Alias, Target: target, Answers: []dnsmessage.Resource{cname}}
	}
	next := *a
	next.question.Name = to
	var r Reply
	if n := len(labels); n > 1 && labels[n-1] == svc {
		r = next.inServices(labels[:n-1], left-1)
	} else {
		r = next.forward(labels)
	}
	r.Answers = append([]dnsmessage.Resource{cname}, r.Answers...)
	return r
}

// pod answers for ADDRESS.NAMESPACE.pod, with the pod to be looked for.
func (a *asking) pod(labels []string) Reply {
	switch len(labels) {
	case 1:
		return a.nothing() // which pods there are is asked by their addresses only
	case 2:
		address, ok := undashed(labels[0])
		if !ok || !isLabel(labels[1]) {
			return a.missing()
		}
		r := a.records()
		if a.wantsFamily(address) {
			r = a.records(a.address(a.question.Name, address))
		}
		r.Outcome, r.Pod, r.Namespace = PodAddress, address, labels[1]
		return r
	}
	return a.missing()
}

// isLabel says whether a namespace may have a name: letters, digits and dashes. In a question there may be anything.
func isLabel(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
