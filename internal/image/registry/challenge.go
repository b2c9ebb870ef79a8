package registry

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// challenge is one way in which a registry wants to be told who asks: a part of WWW-Authenticate (RFC 9110, section 11.6.1).
type challenge struct {
	scheme string
	params [][2]string // names and values, in order
}

func (c challenge) is(scheme string) bool { return strings.EqualFold(c.scheme, scheme) }

func (c challenge) param(name string) string {
	for _, p := range c.params {
		if strings.EqualFold(p[0], name) {
			return p[1]
		}
	}
	return ""
}

// String is the form that containerd's parser reads: one challenge, every value quoted.
func (c challenge) String() string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	b.WriteString(c.scheme)
	for i, p := range c.params {
		b.WriteString([]string{" ", ","}[min(i, 1)])
		b.WriteString(p[0] + `="` + quote.Replace(p[1]) + `"`)
	}
	return b.String()
}

// readChallenges reads the challenges of all WWW-Authenticate fields, also as registries and the proxies before them write
// them against the grammar: several in one field, values without quotes or in single ones, spaces around "=".
func readChallenges(fields []string) []challenge {
	var all []challenge
	for _, f := range fields {
		all = append(all, readField(f)...)
	}
	return all
}

func readField(s string) (all []challenge) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return all
		}
		word, rest := cutToken(s)
		if word == "" {
			s = s[1:] // no grammar has this here
			continue
		}
		value, isParam := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
		if !isParam {
			all = append(all, challenge{scheme: word})
			s = rest
			continue
		}
		var v string
		v, s = cutValue(strings.TrimLeft(value, " \t"))
		if n := len(all); n > 0 {
			all[n-1].params = append(all[n-1].params, [2]string{word, v})
		}
	}
}

// cutToken cuts a token (RFC 9110, section 5.6.2) from the begin of s.
func cutToken(s string) (token, rest string) {
	i := strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// cutValue cuts a parameter's value from the begin of s: in quotes, or up to the next comma or space.
func cutValue(s string) (value, rest string) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		if i := strings.IndexAny(s, ", \t"); i >= 0 {
			return s[:i], s[i:]
		}
		return s, ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), "" // never closed
}

// usableChallenges are those of an answer that can be met: basic, and bearer with a realm, which is made absolute. refused
// says that the answer refuses a token, and not the lack of one.
func usableChallenges(resp *http.Response, refused bool) (usable []challenge, schemes []string) {
	for _, c := range readChallenges(resp.Header.Values("Www-Authenticate")) {
		if !slices.Contains(schemes, c.scheme) {
			schemes = append(schemes, c.scheme)
		}
		switch {
		case c.is("Basic"):
			usable = append(usable, c)
		case c.is("Bearer") && c.param("realm") != "":
			realm, err := url.Parse(c.param("realm"))
			if err != nil {
				continue
			}
			params := [][2]string{{"realm", resp.Request.URL.ResolveReference(realm).String()}}
			for _, name := range []string{"service", "scope", "error"} {
				if v := c.param(name); v != "" {
					params = append(params, [2]string{name, v})
				}
			}
			if refused && c.param("error") == "" {
				// With the error's name (RFC 6750, section 3.1) containerd fetches another token. Many registries do not say it.
				params = append(params, [2]string{"error", "invalid_token"})
			}
			usable = append(usable, challenge{scheme: "Bearer", params: params})
		}
	}
	return usable, schemes
}
