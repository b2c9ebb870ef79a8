package podspec

import "strings"

// Expand replaces each $(NAME) by what lookup says; a name that lookup does not know stays as it is written, and "$$"
// stands for "$". It is the expansion of commands, arguments and environment values of the API's Container type.
func Expand(s string, lookup func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			b.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				b.WriteString(s)
				return b.String()
			}
			if v, ok := lookup(s[2:end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString(s[:end+1])
			}
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

func expander(env []EnvVar) func(string) string {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return func(s string) string {
		return Expand(s, func(name string) (string, bool) { v, ok := values[name]; return v, ok })
	}
}
