package cdispec

import (
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// The lengths that the CDI specification allows for a kind, "prefix/name" (section Kind). A label is a part of a DNS name (RFC 1035).
const (
	maxPrefix = 253
	maxLabel  = 63
	maxName   = 63
)

// ParseName splits a device's qualified name, "vendor.com/class=device".
func ParseName(name string) (kind, device string, err error) {
	kind, device, ok := strings.Cut(name, "=")
	if !ok {
		return "", "", fmt.Errorf("%q: a device's name looks like vendor.com/class=device", name)
	}
	if err := CheckKind(kind); err != nil {
		return "", "", fmt.Errorf("%q: %w; a device's name looks like vendor.com/class=device", name, err)
	}
	if err := parser.ValidateDeviceName(device); err != nil {
		return "", "", fmt.Errorf("%q: %w; a device's name looks like vendor.com/class=device", name, err)
	}
	return kind, device, nil
}

// CheckKind says what is wrong with a kind, "vendor.com/class".
func CheckKind(kind string) error {
	prefix, name, ok := strings.Cut(kind, "/")
	if !ok {
		return fmt.Errorf("kind %q has no slash: a kind looks like vendor.com/class", kind)
	}
	if err := checkPrefix(prefix); err != nil {
		return fmt.Errorf("kind %q: %w", kind, err)
	}
	if err := checkSegment(name); err != nil {
		return fmt.Errorf("kind %q: %w", kind, err)
	}
	return nil
}

// checkPrefix: a DNS subdomain. Capitals are those of DNS, which has no others (RFC 4343).
func checkPrefix(prefix string) error {
	if len(prefix) > maxPrefix {
		return fmt.Errorf("the prefix has %d characters, a DNS name has %d at most", len(prefix), maxPrefix)
	}
	for label := range strings.SplitSeq(prefix, ".") {
		switch {
		case label == "":
			return fmt.Errorf("the prefix %q has an empty label", prefix)
		case len(label) > maxLabel:
			return fmt.Errorf("the label %q of the prefix has %d characters, a DNS label has %d at most", label, len(label), maxLabel)
		case !isAlphaNumeric(label[0]) || !isAlphaNumeric(label[len(label)-1]):
			return fmt.Errorf("the label %q of the prefix does not begin and end with a letter or digit", label)
		}
		for i := range len(label) {
			if c := label[i]; !isAlphaNumeric(c) && c != '-' {
				return fmt.Errorf("the label %q of the prefix has the character %q; a DNS label has letters, digits and dashes", label, c)
			}
		}
	}
	return nil
}

func checkSegment(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name after the slash is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name %q has %d characters, %d are allowed", name, len(name), maxName)
	case !isAlphaNumeric(name[0]) || !isAlphaNumeric(name[len(name)-1]):
		return fmt.Errorf("the name %q does not begin and end with a letter or digit", name)
	}
	for i := range len(name) {
		if c := name[i]; !isAlphaNumeric(c) && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("the name %q has the character %q; letters, digits, dashes, underscores and dots are allowed", name, c)
		}
	}
	return nil
}

func isAlphaNumeric(c byte) bool { return parser.IsAlphaNumeric(rune(c)) }
