// Package errtext is what an error says to people who get its class by other means: a gRPC code, a status.
package errtext

import (
	"context"
	"strings"

	"github.com/containerd/errdefs"
)

// Of is an error's words without those of its class at their end (": not found"), which repeat what the sentence says.
func Of(err error) string {
	words, class := err.Error(), errdefs.Resolve(err)
	switch class {
	case errdefs.ErrUnknown, context.Canceled, context.DeadlineExceeded: // no class of ours
		return words
	}
	for suffix := ": " + class.Error(); strings.HasSuffix(words, suffix); {
		words = strings.TrimSuffix(words, suffix)
	}
	return words
}
