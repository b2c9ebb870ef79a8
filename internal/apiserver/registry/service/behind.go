package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What is behind a service, as its endpoint slices say.

// endpoint is where a port of a service leads.
type endpoint struct {
	address, port string
	// pod is whose address it is said to be.
	pod *corev1.ObjectReference
	// second: it is not of the service's first family.
	second bool
}

// portNamed is the name of the service's TCP port that is wanted by its name or its number; by nothing, the only one.
func portNamed(svc *corev1.Service, wanted string) (string, error) {
	number, err := strconv.ParseInt(wanted, 10, 64)
	byNumber := err == nil
	var names []string
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		switch {
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			continue
		case byNumber && int64(p.Port) == number, !byNumber && p.Name == wanted:
			return p.Name, nil
		}
		names = append(names, p.Name)
	}
	switch {
	case wanted == "" && len(names) == 1:
		return names[0], nil
	case byNumber:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, svc.Name))
	case wanted == "" && len(names) > 1:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q: name one of %s", wanted, svc.Name, strings.Join(names, ", ")))
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", wanted, svc.Name))
}

// ready are the endpoints of a service's port that take requests, in an order that is another one each time, but those of the service's first family before
// those of the other: it may have one that the API server's host has not.
func ready(svc *corev1.Service, behind []discoveryv1.EndpointSlice, portName string) (all []endpoint) {
	for i := range behind {
		s := &behind[i]
		port := number(s.Ports, portName)
		if port == "" {
			continue
		}
		for j := range s.Endpoints {
			e := &s.Endpoints[j]
			if is := e.Conditions.Ready; is != nil && !*is || len(e.Addresses) == 0 {
				continue
			}
			// What else there is than the first is said to be the same endpoint, and has no meaning (discovery.k8s.io/v1).
			all = append(all, endpoint{address: e.Addresses[0], port: port, pod: e.TargetRef, second: !isFirst(svc, s.AddressType)})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b endpoint) int {
		switch {
		case a.second == b.second:
			return 0
		case b.second:
			return -1
		}
		return 1
	})
	return all
}

func isFirst(svc *corev1.Service, family discoveryv1.AddressType) bool {
	return len(svc.Spec.IPFamilies) == 0 || string(svc.Spec.IPFamilies[0]) == string(family)
}

// number is that of a TCP port, or "".
func number(ports []discoveryv1.EndpointPort, name string) string {
	for _, p := range ports {
		switch {
		case p.Port == nil, p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
			continue
		case p.Name == nil && name == "", p.Name != nil && *p.Name == name:
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

// told is how many reasons an error has room for.
const told = 3

// noEndpoints: no endpoint can be asked, each for a reason.
func noEndpoints(id string, reasons []string) error {
	message := fmt.Sprintf("no endpoints available for service %q", id)
	if more := len(reasons) - told; more > 0 {
		reasons = append(reasons[:told:told], fmt.Sprintf("and %d more", more))
	}
	if len(reasons) > 0 {
		message += ": " + strings.Join(reasons, "; ")
	}
	return apierrors.NewServiceUnavailable(message)
}
