// Package imageref reads what names an image, in the one canonical form of each: an image id, or a name with a tag or a digest.
package imageref

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"monopod.dev/monopod/internal/kit/ids"
)

var id = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

// Ref is a reference in its one canonical form: either an id, or a name.
type Ref struct {
	ID   ids.ImageID     // when the reference is an image id
	Name reference.Named // else: tagged or with a digest, never both
}

// Parse reads whatever may name an image of the store. Errors: InvalidArgument.
func Parse(s string) (Ref, error) {
	if id, err := ParseID(s); err == nil {
		return Ref{ID: id}, nil
	}
	named, err := ParseName(s)
	return Ref{Name: named}, err
}

// ParseName completes a reference as docker does: busybox is docker.io/library/busybox:latest. A reference with both a tag and a
// digest loses the tag: the digest is what decides. Errors: InvalidArgument.
func ParseName(s string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(s)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w; it should look like [host[:port]/]path[:tag][@sha256:digest] in lower case: %w",
			s, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}

// ParseID reads what must be an image id, with or without its algorithm. Errors: InvalidArgument.
func ParseID(s string) (ids.ImageID, error) {
	if !IsID(s) {
		return "", fmt.Errorf("image id %q: it should be sha256: and 64 hex digits: %w", s, errdefs.ErrInvalidArgument)
	}
	return ids.ImageID("sha256:" + strings.TrimPrefix(s, "sha256:")), nil
}

// IsID says whether this is an image id, with or without its algorithm.
func IsID(s string) bool { return id.MatchString(s) }
