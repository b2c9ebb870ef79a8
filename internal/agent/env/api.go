package env

import (
	"net"
	"net/netip"
	"strconv"

	"monopod.dev/monopod/internal/agent/podspec"
)

// API are the variables by which programs in containers find the API, as kubelets set them: those that client-go reads, and those in the form of the
// links that containers once had. Without an address there are none.
func API(at netip.AddrPort) []podspec.EnvVar {
	if !at.IsValid() {
		return nil
	}
	host, port := at.Addr().String(), strconv.Itoa(int(at.Port()))
	url := "tcp://" + net.JoinHostPort(host, port)
	link := "KUBERNETES_PORT_" + port + "_TCP"
	return []podspec.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		{Name: "KUBERNETES_PORT", Value: url},
		{Name: link, Value: url},
		{Name: link + "_PROTO", Value: "tcp"},
		{Name: link + "_PORT", Value: port},
		{Name: link + "_ADDR", Value: host},
	}
}
