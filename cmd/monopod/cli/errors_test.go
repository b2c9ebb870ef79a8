package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

// No command's error begins or ends in its class.
func TestErrorsWithoutTheirClasses(t *testing.T) {
	for _, class := range classes {
		for _, err := range []error{
			fmt.Errorf("device modem is in use by default/dev/c: delete the pod: %w", class),
			fmt.Errorf("%w: device modem is in use by default/dev/c: delete the pod", class),
			fmt.Errorf("device modem is in use by default/dev/c: delete the pod: %v: %v", class, errdefs.ErrFailedPrecondition), // from another process
		} {
			if got := Plainly(err); got != "device modem is in use by default/dev/c: delete the pod" {
				t.Errorf("%v: %q", err, got)
			}
		}
	}
	for text, want := range map[string]string{
		"one: not found\ntwo: already exists\nthree": "one\ntwo\nthree",
		"not found":                             "not found",
		"what was not found: it is unavailable": "what was not found: it is unavailable",
		"":                                      "",
	} {
		if got := Plainly(errors.New(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
