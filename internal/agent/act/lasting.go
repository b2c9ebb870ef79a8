package act

import "regexp"

// lasting is what a runtime has said of a container that could not be made or started, without what is another one at each attempt: the container's id, and the
// times that programs write before their words. With these no two events would be the same, so none would be counted, and each attempt would be written into
// the pod's status.
func lasting(words string) string {
	for _, t := range passing {
		words = t.what.ReplaceAllString(words, t.by)
	}
	return words
}

var passing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(^|[ (])[0-9a-f]{64}\b`), ""},       // "create container ID: ..."; not "sha256:..."
	{regexp.MustCompile(`([/"_-])[0-9a-f]{64}\b`), "${1}ID"}, // in a path, in JSON, in a name
	{regexp.MustCompile(`\btime="[^"]*" `), ""},              // logrus, slog
	{regexp.MustCompile(`\btime=[^ "]+ `), ""},
}
