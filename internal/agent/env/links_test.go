package env

import (
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestLinks(t *testing.T) {
	https := v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}
	all := []*v1.Service{
		service("ns", "web", "10.43.0.2", v1.ServicePort{Port: 80}),
		service("other", "web", "10.43.0.3", v1.ServicePort{Port: 80}),
		service("default", "kubernetes", "10.43.0.1", https),
		service("default", "neighbour", "10.43.0.4", https),
		service("ns", "headless", v1.ClusterIPNone, https),
		service("ns", "elsewhere", ""),
		service("ns", "no-ports", "10.43.0.5"),
		service("ns", "my-db", "fd00::6", v1.ServicePort{Name: "dns-udp", Port: 53, Protocol: v1.ProtocolUDP}, v1.ServicePort{Name: "sctp", Port: 7, Protocol: v1.ProtocolSCTP}),
	}
	const (
		kube = "KUBERNETES_SERVICE_HOST=10.43.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443 KUBERNETES_PORT=tcp://10.43.0.1:443 " +
			"KUBERNETES_PORT_443_TCP=tcp://10.43.0.1:443 KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_PORT_443_TCP_PORT=443 KUBERNETES_PORT_443_TCP_ADDR=10.43.0.1"
		web = "WEB_SERVICE_HOST=10.43.0.2 WEB_SERVICE_PORT=80 WEB_PORT=tcp://10.43.0.2:80 " +
			"WEB_PORT_80_TCP=tcp://10.43.0.2:80 WEB_PORT_80_TCP_PROTO=tcp WEB_PORT_80_TCP_PORT=80 WEB_PORT_80_TCP_ADDR=10.43.0.2"
		db = "MY_DB_SERVICE_HOST=fd00::6 MY_DB_SERVICE_PORT=53 MY_DB_SERVICE_PORT_DNS_UDP=53 MY_DB_SERVICE_PORT_SCTP=7 MY_DB_PORT=udp://[fd00::6]:53 " +
			"MY_DB_PORT_53_UDP=udp://[fd00::6]:53 MY_DB_PORT_53_UDP_PROTO=udp MY_DB_PORT_53_UDP_PORT=53 MY_DB_PORT_53_UDP_ADDR=fd00::6 " +
			"MY_DB_PORT_7_SCTP=sctp://[fd00::6]:7 MY_DB_PORT_7_SCTP_PROTO=sctp MY_DB_PORT_7_SCTP_PORT=7 MY_DB_PORT_7_SCTP_ADDR=fd00::6"
	)
	own := append([]*v1.Service{service("ns", "kubernetes", "10.43.0.9", v1.ServicePort{Port: 1})}, all...)
	given, none := netip.MustParseAddrPort("10.61.0.1:6443"), netip.AddrPort{}
	for _, c := range []struct {
		name string
		in   LinksInput
		// want are whole variables, or how they begin.
		want string
		only bool
	}{
		{"those of the namespace", LinksInput{Services: all, Namespace: "ns", Links: true}, kube + " " + db + " " + web, true},
		{"only the API", LinksInput{Services: all, Namespace: "ns"}, kube, true},
		{"only the API, in its namespace", LinksInput{Services: all, Namespace: "default"}, kube, true},
		{"the API's neighbours", LinksInput{Services: all, Namespace: "default", Links: true}, kube + " NEIGHBOUR_SERVICE_HOST=10.43.0.4 ", false},
		{"there are none", LinksInput{Namespace: "ns", Links: true}, "", true},
		{"the API elsewhere", LinksInput{Services: all, Namespace: "other", Links: true, API: &given}, "KUBERNETES_SERVICE_HOST=10.61.0.1 KUBERNETES_SERVICE_PORT=6443 ", false},
		{"the API elsewhere, in its namespace", LinksInput{Services: all, Namespace: "default", API: &given}, "KUBERNETES_SERVICE_HOST=10.61.0.1 ", false},
		{"no API", LinksInput{Services: all, Namespace: "ns", Links: true, API: &none}, db + " " + web, true},
		{"a service of that name", LinksInput{Services: own, Namespace: "ns", Links: true}, "KUBERNETES_SERVICE_HOST=10.43.0.9 KUBERNETES_SERVICE_PORT=1 KUBERNETES_PORT=", false},
		{"a service of that name, and the API elsewhere", LinksInput{Services: own, Namespace: "ns", Links: true, API: &given}, "KUBERNETES_SERVICE_HOST=10.43.0.9 ", false},
		{"a service of that name, not wanted", LinksInput{Services: own, Namespace: "ns"}, kube, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			hosts := 0
			for _, v := range Links(c.in) {
				said = append(said, v.Name+"="+v.Value)
				if v.Name == "KUBERNETES_SERVICE_HOST" {
					hosts++
				}
			}
			got := strings.Join(said, " ")
			if c.only && got != c.want || !strings.HasPrefix(got, c.want) || hosts > 1 {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
