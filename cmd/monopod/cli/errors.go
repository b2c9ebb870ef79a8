package cli

import (
	"strings"

	"github.com/containerd/errdefs"
)

// classes are how errors are classed inside; they are for programs.
var classes = []error{
	errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrPermissionDenied, errdefs.ErrResourceExhausted,
	errdefs.ErrFailedPrecondition, errdefs.ErrConflict, errdefs.ErrNotModified, errdefs.ErrAborted, errdefs.ErrOutOfRange, errdefs.ErrNotImplemented,
	errdefs.ErrInternal, errdefs.ErrUnavailable, errdefs.ErrDataLoss, errdefs.ErrUnauthenticated,
}

// Plainly is what an error says to a person: its words without the classes at the begin and the end of each line, where they repeat in two words what the
// sentence says. It may have come from another process, as text.
func Plainly(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = withoutClasses(line)
	}
	return strings.Join(lines, "\n")
}

func withoutClasses(line string) string {
	for {
		before := line
		for _, class := range classes {
			line = strings.TrimSuffix(line, ": "+class.Error())
			line = strings.TrimPrefix(line, class.Error()+": ")
		}
		if line == before {
			return line
		}
	}
}
