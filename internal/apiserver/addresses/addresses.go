// Package addresses checks the addresses and protocols that resources of the network have in common.
package addresses

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Parse reads an address in its one way of writing. Addresses that hold an IPv4 address in an IPv6 one, have a zone or leading zeros mean different
// things to different programs.
func Parse(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == "" && !a.Is4In6()
}

// Valid requires an address.
func Valid(s string, at *field.Path) field.ErrorList {
	if _, ok := Parse(s); !ok {
		return field.ErrorList{field.Invalid(at, s, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
	}
	return nil
}

// Endpoint requires an address that packets for a service may be sent on to: one of another machine than whoever sends.
func Endpoint(s string, at *field.Path) field.ErrorList {
	a, ok := Parse(s)
	if !ok {
		return Valid(s, at)
	}
	var what string
	switch {
	case a.IsUnspecified():
		what = "unspecified (" + a.String() + ")"
	case a.IsLoopback():
		what = "in the loopback range (127.0.0.0/8, ::1/128)"
	case a.IsLinkLocalUnicast():
		what = "in the link-local range (169.254.0.0/16, fe80::/10)"
	case a.IsLinkLocalMulticast():
		what = "in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(at, s, "may not be "+what)}
}

// protocols are those that ports can have.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// Protocol requires one of the protocols that have ports.
func Protocol(p corev1.Protocol, at *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, known := range protocols {
		if p == known {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, p, protocols)}
}
