package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod.dev/monopod/internal/kit/iprange"
)

// rule says what a value must do, in words that follow "it must"; "": it does. The value is of the type of the key, or of its list's items.
type rule func(value any) (must string)

// text is a rule of strings: must, unless they are good.
func text(good func(string) bool, must string) rule {
	return func(v any) string {
		if good(v.(string)) {
			return ""
		}
		return must
	}
}

// number is a rule of numbers, from the least to the most.
func number(least, most int32, must string) rule {
	return func(v any) string {
		if n := v.(int32); n < least || n > most {
			return must
		}
		return ""
	}
}

// during is a rule of times.
func during(good func(time.Duration) bool, must string) rule {
	return func(v any) string {
		if good(v.(time.Duration)) {
			return ""
		}
		return must
	}
}

// both are two rules, the first of which that is broken is told.
func both(a, b rule) rule {
	return func(v any) string {
		if must := a(v); must != "" {
			return must
		}
		return b(v)
	}
}

func oneOf(allowed ...string) rule {
	return text(func(s string) bool { return slices.Contains(allowed, s) }, "be one of "+strings.Join(allowed, ", "))
}

// notNegative is a rule of times, which may be none.
func notNegative(must string) rule {
	return during(func(d time.Duration) bool { return d >= 0 }, must)
}

var (
	absolute = text(filepath.IsAbs, "be an absolute path")
	address  = text(isAddress, "be an IP address")
	port     = number(0, 65535, "be between 0 (any free port) and 65535")
	onOrOff  = oneOf(Enabled, Disabled)
	pattern  = text(isPattern, `be names or patterns, such as "vendor.com/*"`)
	origin   = text(isOrigin, "be an origin, such as https://console.example.com")
)

func isAddress(s string) bool { _, err := netip.ParseAddr(s); return err == nil }

// isPattern says whether s is a pattern of package path.
func isPattern(s string) bool { _, err := path.Match(s, ""); return err == nil && s != "" }

func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && u.Path == ""
}

// isCertName says whether a certificate can be for s.
func isCertName(s string) bool {
	return isAddress(s) || len(validation.IsWildcardDNS1123Subdomain(s)) == 0 || len(validation.IsDNS1123Subdomain(s)) == 0
}

// isIssuer says whether s can sign tokens.
func isIssuer(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// maxSocketPath is the longest path that a unix socket can be bound to (unix(7): sun_path has 108 bytes with the
// terminating zero).
const maxSocketPath = 107

// socket is a rule of paths at which a socket is, or, with a name, below which one of that name is.
func socket(name string) rule {
	return func(v any) string {
		if n := len(filepath.Join(v.(string), name)); n > maxSocketPath {
			return fmt.Sprintf("be shorter: a unix socket's path may have %d bytes, and that of %s has %d", maxSocketPath, filepath.Join(v.(string), name), n)
		}
		return ""
	}
}

// isCgroup says whether path is that of a cgroup below the root.
func isCgroup(path string) bool {
	return filepath.IsAbs(path) && path != "/" && filepath.Clean(path) == path
}

// maxInterfaceName is the longest name of a network interface (IFNAMSIZ less the terminating zero).
const maxInterfaceName = 15

func isInterfaceName(name string) bool {
	return name != "" && len(name) <= maxInterfaceName && !strings.ContainsAny(name, "/ :\t\n")
}

// isAPIAddress says whether pods can reach the API at s.
func isAPIAddress(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && !ip.IsLoopback() && !ip.IsUnspecified()
}

func isLoopback(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.IsLoopback()
}

// size is a rule of amounts of bytes.
func size(good func(int64) bool, must string) rule {
	return text(func(s string) bool { n, err := ParseSize(s); return err == nil && good(n) }, must)
}

// reaches is a rule of ranges of addresses that other machines reach: services have them beside those that the cluster gives them.
func reaches(v any) string {
	r, err := iprange.Parse(v.(string))
	if err != nil {
		return fmt.Sprintf("be a prefix, FIRST-LAST or one address, such as 192.168.1.240/28 or 192.168.1.240-192.168.1.250: %v", err)
	}
	for _, a := range []netip.Addr{r.First, r.Last} {
		if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return fmt.Sprintf("have addresses that others reach, and not %s", a)
		}
	}
	return ""
}

// isDomain says whether s is a DNS name of labels of at most so many characters.
func isDomain(s string, most int) bool {
	if len(s) > most {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return true
}

func isDNSLabel(s string) bool {
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !alnum && (r != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}
