package pods

import "strings"

// Subscript splits the path of a field in the downward API that names one key of a map: metadata.labels['KEY'].
func Subscript(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok {
		return "", "", false
	}
	if key, ok = strings.CutSuffix(rest, "']"); !ok {
		return "", "", false
	}
	return base, key, true
}
