package env

import (
	"fmt"
	"strings"
)

// FileValue is the value of a key in a file of variables, by a kubelet's rules: lines KEY='VALUE', nothing between the name, the "=" and the quote but where
// the value is empty, everything literal between two single quotes, also over several lines; blank lines, and comments from a "#" on. found is false for a
// key that is not there, and for one without a value. What follows the key's own line is not looked at. The content is a container's, and is in no error.
func FileValue(content, key string) (value string, found bool, err error) {
	lines := strings.Split(content, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(ended(lines[i]), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		first := i + 1
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", false, fmt.Errorf("invalid environment variable format at line %d: missing '='", first)
		case strings.Trim(name, " \t") == "":
			return "", false, fmt.Errorf("invalid environment variable format at line %d: empty variable name", first)
		case strings.TrimRight(name, " \t") != name:
			return "", false, fmt.Errorf("invalid environment variable format at line %d: whitespace before '=' is not allowed", first)
		case rest != "" && strings.IndexByte(" \t", rest[0]) >= 0: // to a shell it is empty
			if name == key {
				return "", false, nil
			}
			continue
		case rest == "" || rest[0] != '\'':
			return "", false, fmt.Errorf("invalid environment variable format at line %d: value must be enclosed in single quotes", first)
		}
		value, rest, ok = strings.Cut(rest[1:], "'")
		for !ok {
			if i++; i == len(lines) || i == len(lines)-1 && lines[i] == "" {
				return "", false, fmt.Errorf("invalid environment variable format starting at line %d: unclosed single quote", first)
			}
			var more string
			more, rest, ok = strings.Cut(ended(lines[i]), "'")
			value += "\n" + more
		}
		if rest = strings.TrimLeft(rest, " \t"); rest != "" && rest[0] != '#' {
			return "", false, fmt.Errorf("invalid environment variable format at line %d: unexpected content after closing quote", i+1)
		}
		if name == key {
			return value, value != "", nil
		}
	}
	return "", false, nil
}

// ended is a line without the carriage return at its end.
func ended(line string) string { return strings.TrimSuffix(line, "\r") }
