package answer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// cluster is a view with services by "NAMESPACE/NAME".
type cluster map[string]*Service

func (c cluster) Service(namespace, name string) *Service { return c[namespace+"/"+name] }

func (c cluster) HasNamespace(namespace string) bool {
	for k := range c {
		if strings.HasPrefix(k, namespace+"/") {
			return true
		}
	}
	return false
}

func (c cluster) NamesOf(address netip.Addr) (names []string) {
	for k, s := range c {
		namespace, name, _ := strings.Cut(k, "/")
		if slices.Contains(s.Addresses, address) {
			names = append(names, name+"."+namespace+".svc")
		}
		for i := range s.Endpoints {
			if s.Endpoints[i].Address == address {
				names = append(names, s.Endpoints[i].Label()+"."+name+"."+namespace+".svc")
			}
		}
	}
	slices.Sort(names)
	return names
}

func (cluster) Serial() uint32 { return 7 }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var (
	http   = []Port{{"http", "tcp", 80}, {"peer", "udp", 7000}}
	sample = cluster{
		"default/web":  {Addresses: []netip.Addr{addr("10.43.0.20"), addr("fd00:43::20")}, Ports: http},
		"default/v4":   {Addresses: []netip.Addr{addr("10.43.0.21")}},
		"default/none": {Headless: true},
		"db/set": {Headless: true, Endpoints: []Endpoint{
			{Address: addr("10.61.0.5"), Hostname: "set-0", Ports: http[:1]}, {Address: addr("10.61.0.6"), Hostname: "set-1", Ports: http[:1]},
			{Address: addr("fd00:61::6"), Hostname: "set-1", Ports: http[:1]}, {Address: addr("10.61.0.7"), Ports: http[:1]},
		}},
		"default/away":   {External: "www.example.com"},
		"default/here":   {External: "web.default.svc.cluster.local."},
		"default/circle": {External: "circle.default.svc.cluster.local"},
		"default/lost":   {External: "nobody.default.svc.cluster.local"},
	}
	zone = Zone{
		Domain: "cluster.local", Services: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd00:43::/112")},
		Servers: []netip.Addr{addr("10.43.0.10"), addr("fd00:43::a")},
	}
)

// said is a reply in words.
func said(r Reply) string {
	words := []string{strings.TrimPrefix(r.RCode.String(), "RCode")}
	switch r.Outcome {
	case Elsewhere:
		return "elsewhere"
	case Alias:
		words = append(words, "and of "+r.Target)
	case PodAddress:
		words = append(words, fmt.Sprintf("if %s has %s", r.Namespace, r.Pod))
	case Answered:
	}
	records := func(mark string, all []dnsmessage.Resource) {
		for _, rr := range all {
			body := ""
			switch b := rr.Body.(type) {
			case *dnsmessage.AResource:
				body = netip.AddrFrom4(b.A).String()
			case *dnsmessage.AAAAResource:
				body = netip.AddrFrom16(b.AAAA).String()
			case *dnsmessage.CNAMEResource:
				body = "CNAME " + b.CNAME.String()
			case *dnsmessage.PTRResource:
				body = "PTR " + b.PTR.String()
			case *dnsmessage.SRVResource:
				body = fmt.Sprintf("SRV %s:%d", b.Target, b.Port)
			case *dnsmessage.NSResource:
				body = "NS " + b.NS.String()
			case *dnsmessage.TXTResource:
				body = fmt.Sprintf("TXT %q", b.TXT)
			case *dnsmessage.SOAResource:
				body = fmt.Sprintf("SOA of %s %d", rr.Header.Name, b.MinTTL)
			}
			words = append(words, mark+body)
		}
	}
	records("", r.Answers)
	records("?", r.Authority)
	records("+", r.Additional)
	return strings.Join(words, ", ")
}

const soa = "?SOA of cluster.local. 5"

func TestAnswer(t *testing.T) {
	a, aaaa, srv, ptr, txt, all := dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV, dnsmessage.TypePTR, dnsmessage.TypeTXT, dnsmessage.TypeALL
	missing, empty := "NameError, "+soa, "Success, "+soa
	for _, c := range []struct {
		name string
		typ  dnsmessage.Type
		want string
	}{
		{"dns-version.cluster.local.", txt, `Success, TXT ["1.1.0"]`},
		{"dns-version.cluster.local.", a, empty},
		{"cluster.local.", a, empty},
		{"cluster.local.", dnsmessage.TypeNS, "Success, NS ns.dns.cluster.local., +10.43.0.10, +fd00:43::a"},
		{"cluster.local.", dnsmessage.TypeSOA, "Success, SOA of cluster.local. 5"},
		{"ns.dns.cluster.local.", a, "Success, 10.43.0.10"},
		{"svc.cluster.local.", a, empty},
		{"nothing.cluster.local.", a, missing},

		{"web.default.svc.cluster.local.", a, "Success, 10.43.0.20"},
		{"WEB.Default.SVC.cluster.LOCAL.", aaaa, "Success, fd00:43::20"},
		{"web.default.svc.cluster.local.", all, "Success, 10.43.0.20, fd00:43::20"},
		{"web.default.svc.cluster.local.", txt, empty},
		{"v4.default.svc.cluster.local.", aaaa, empty},
		{"web.other.svc.cluster.local.", a, missing},
		{"nobody.default.svc.cluster.local.", a, missing},
		{"default.svc.cluster.local.", a, empty},
		{"other.svc.cluster.local.", a, missing},
		{"_http._tcp.web.default.svc.cluster.local.", srv, "Success, SRV web.default.svc.cluster.local.:80, +10.43.0.20, +fd00:43::20"},
		{"_http._tcp.web.default.svc.cluster.local.", a, empty},
		{"_http._udp.web.default.svc.cluster.local.", srv, missing},
		{"_tcp.web.default.svc.cluster.local.", srv, empty},
		{"_sctp.web.default.svc.cluster.local.", srv, missing},
		{"v4.default.svc.cluster.local.", srv, empty},
		{"web.default.svc.cluster.local.", srv, "Success, SRV web.default.svc.cluster.local.:80, SRV web.default.svc.cluster.local.:7000, +10.43.0.20, +fd00:43::20"},
		{"a.b.web.default.svc.cluster.local.", a, missing},
		{"x.web.default.svc.cluster.local.", a, missing},

		{"none.default.svc.cluster.local.", a, missing},
		{"set.db.svc.cluster.local.", a, "Success, 10.61.0.6, 10.61.0.7, 10.61.0.5"}, // begins with the second
		{"set.db.svc.cluster.local.", aaaa, "Success, fd00:61::6"},
		{"set-1.set.db.svc.cluster.local.", a, "Success, 10.61.0.6"},
		{"set-1.set.db.svc.cluster.local.", aaaa, "Success, fd00:61::6"},
		{"set-0.set.db.svc.cluster.local.", aaaa, empty},
		{"set-2.set.db.svc.cluster.local.", a, missing},
		{"10-61-0-7.set.db.svc.cluster.local.", a, "Success, 10.61.0.7"},
		{"10-61-0-5.set.db.svc.cluster.local.", a, "Success, 10.61.0.5"},
		{"fd00-61--6.set.db.svc.cluster.local.", aaaa, "Success, fd00:61::6"},
		{"_http._tcp.set.db.svc.cluster.local.", srv, "Success, SRV set-1.set.db.svc.cluster.local.:80, SRV 10-61-0-7.set.db.svc.cluster.local.:80, SRV set-0.set.db.svc.cluster.local.:80, " +
			"+10.61.0.5, +10.61.0.6, +fd00:61::6, +10.61.0.7"},

		{"away.default.svc.cluster.local.", a, "Success, and of www.example.com, CNAME www.example.com."},
		{"away.default.svc.cluster.local.", dnsmessage.TypeCNAME, "Success, CNAME www.example.com."},
		{"x.away.default.svc.cluster.local.", a, missing},
		{"here.default.svc.cluster.local.", a, "Success, CNAME web.default.svc.cluster.local., 10.43.0.20"},
		{"lost.default.svc.cluster.local.", a, "NameError, CNAME nobody.default.svc.cluster.local., " + soa},
		{"circle.default.svc.cluster.local.", a, "ServerFailure" + strings.Repeat(", CNAME circle.default.svc.cluster.local.", maxAliases)},

		{"10-61-0-9.default.pod.cluster.local.", a, "Success, if default has 10.61.0.9, 10.61.0.9"},
		{"10-61-0-9.default.pod.cluster.local.", aaaa, "Success, if default has 10.61.0.9, " + soa},
		{"fd00-61--9.default.pod.cluster.local.", aaaa, "Success, if default has fd00:61::9, fd00:61::9"},
		{"web-0.default.pod.cluster.local.", a, missing},
		{"10-61-0-9.a%2fb.pod.cluster.local.", a, missing},
		{"default.pod.cluster.local.", a, empty},

		{"20.0.43.10.in-addr.arpa.", ptr, "Success, PTR web.default.svc.cluster.local."},
		{"20.0.43.10.in-addr.arpa.", a, "Success, ?SOA of 43.10.in-addr.arpa. 5"},
		{"99.0.43.10.in-addr.arpa.", ptr, "NameError, ?SOA of 43.10.in-addr.arpa. 5"},
		{Reversed(addr("fd00:43::20")) + ".", ptr, "Success, PTR web.default.svc.cluster.local."},
		{"5.0.61.10.in-addr.arpa.", ptr, "Success, PTR set-0.set.db.svc.cluster.local."},
		{"7.0.61.10.in-addr.arpa.", ptr, "Success, PTR 10-61-0-7.set.db.svc.cluster.local."},
		{"8.0.61.10.in-addr.arpa.", ptr, "elsewhere"},
		{"43.10.in-addr.arpa.", ptr, "elsewhere"},
		{"1.0.0.ip6.arpa.", ptr, "elsewhere"},

		{"www.example.com.", a, "elsewhere"},
		{"notcluster.local.", a, "elsewhere"},
		{".", dnsmessage.TypeNS, "elsewhere"},
		{"cluster.local.", typeAXFR, "Refused"},
	} {
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(c.name), Type: c.typ, Class: dnsmessage.ClassINET}
		if got := said(zone.Answer(q, sample, 1)); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.name, c.typ, got, c.want)
		}
	}
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("version.bind."), Type: txt, Class: dnsmessage.ClassCHAOS}
	if got := said(zone.Answer(q, sample, 1)); got != "Refused" {
		t.Errorf("class CHAOS: %s", got)
	}
	if got := said(zone.Missing(sample)); got != missing {
		t.Errorf("missing: %s", got)
	}
}

func TestReverseNames(t *testing.T) {
	for _, s := range []string{"10.0.0.1", "255.255.255.255", "::", "fd00:43::a", "2001:db8:1:2:3:4:5:6"} {
		if got, ok := reverse(Reversed(addr(s))); !ok || got != addr(s) {
			t.Errorf("%s: %s is %v, %v", s, Reversed(addr(s)), got, ok)
		}
	}
	for in, want := range map[string]string{"10.32.0.0/12": "10.in-addr.arpa", "10.43.7.0/24": "7.43.10.in-addr.arpa", "fd00::/8": "d.f.ip6.arpa"} {
		if got := reverseZone(netip.MustParsePrefix(in)); got != want {
			t.Errorf("%s is in %s, want %s", in, got, want)
		}
	}
	for _, bad := range []string{"01.0.0.10.in-addr.arpa", "1.0.0.in-addr.arpa", "x.0.0.10.in-addr.arpa", strings.Repeat("g.", 31) + "g.ip6.arpa", strings.Repeat("0x", 31) + "0.ip6.arpa"} {
		if a, ok := reverse(bad); ok {
			t.Errorf("%s is %v", bad, a)
		}
	}
}

func TestDashed(t *testing.T) {
	for _, s := range []string{"10.0.0.1", "fd00::1", "::1", "fd00::", "2001:db8:1:2:3:4:5:6", "1:2:3::4"} {
		label := Dashed(addr(s))
		if got, ok := undashed(label); !ok || got != addr(s) || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			t.Errorf("%s: %s is %v, %v", s, label, got, ok)
		}
	}
}
