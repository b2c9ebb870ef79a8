package env

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/agent/podspec"
)

// kubernetes is the Service by which the API is found, in the namespace default.
const kubernetes = "kubernetes"

// LinksInput is what the variables that tell of services depend on.
type LinksInput struct {
	// Services are those of all namespaces, in any order.
	Services []*v1.Service
	// Namespace is the pod's, Links its enableServiceLinks.
	Namespace string
	Links     bool
	// API is where pods reach the API, whatever the Service kubernetes says; the zero value: they do not. Nil: at that Service.
	API *netip.AddrPort
}

// Links are the variables by which programs in containers find services, as kubelets set them: those of the pod's namespace that have an address, if it
// wants them, and always that of the API. They are in the order of the services' names.
func Links(in LinksInput) []podspec.EnvVar {
	chosen := map[string]*v1.Service{}
	for _, s := range in.Services {
		api := s.Namespace == metav1.NamespaceDefault && s.Name == kubernetes
		switch {
		case !hasAddress(s), api && in.API != nil:
		case s.Namespace == in.Namespace && (in.Links || api):
			chosen[s.Name] = s
		case api && chosen[kubernetes] == nil: // one of the pod's own namespace goes before it
			chosen[kubernetes] = s
		}
	}
	var vars []podspec.EnvVar
	if in.API != nil && chosen[kubernetes] == nil {
		vars = API(*in.API)
	}
	for _, s := range slices.SortedFunc(maps.Values(chosen), func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) }) {
		vars = append(vars, linksTo(s)...)
	}
	return vars
}

func hasAddress(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone && len(s.Spec.Ports) > 0
}

// linksTo are the variables that tell of a service: its address and ports, and the same in the form of the links that containers once had.
func linksTo(s *v1.Service) []podspec.EnvVar {
	name, host := variable(s.Name), s.Spec.ClusterIP
	vars := []podspec.EnvVar{
		{Name: name + "_SERVICE_HOST", Value: host},
		{Name: name + "_SERVICE_PORT", Value: number(s.Spec.Ports[0].Port)},
	}
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			vars = append(vars, podspec.EnvVar{Name: name + "_SERVICE_PORT_" + variable(p.Name), Value: number(p.Port)})
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := string(cmp.Or(p.Protocol, v1.ProtocolTCP))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(host, number(p.Port))
		if i == 0 {
			vars = append(vars, podspec.EnvVar{Name: name + "_PORT", Value: url})
		}
		link := name + "_PORT_" + number(p.Port) + "_" + strings.ToUpper(protocol)
		vars = append(vars, podspec.EnvVar{Name: link, Value: url}, podspec.EnvVar{Name: link + "_PROTO", Value: strings.ToLower(protocol)},
			podspec.EnvVar{Name: link + "_PORT", Value: number(p.Port)}, podspec.EnvVar{Name: link + "_ADDR", Value: host})
	}
	return vars
}

func number(port int32) string { return strconv.Itoa(int(port)) }

// variable is the part of a variable's name that a name of a service or port becomes.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
