package config

import (
	"fmt"
	"strconv"
	"strings"
)

// OwnPort is a port of the host, with TCP, UDP or SCTP, at which the node itself serves.
type OwnPort struct {
	Protocol string
	Port     uint16
}

// ParseOwnPort reads PORT, which is TCP's, or PORT/PROTOCOL.
func ParseOwnPort(s string) (OwnPort, error) {
	number, protocol, given := strings.Cut(s, "/")
	if protocol = strings.ToUpper(protocol); !given {
		protocol = "TCP"
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" {
		return OwnPort{}, fmt.Errorf("%q is no port: use PORT or PORT/PROTOCOL, such as 10250 or 53/UDP", s)
	}
	return OwnPort{protocol, uint16(n)}, nil
}

func isOwnPort(s string) bool { _, err := ParseOwnPort(s); return err == nil }
