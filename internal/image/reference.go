package image

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

// imageID matches an image id, with or without its algorithm.
var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

// parsed is a reference in its one canonical form: either an id, or a name.
type parsed struct {
	id   string          // "sha256:<hex>", when the reference is an image id
	name reference.Named // else: tagged or with a digest, never both
}

// parseAny reads whatever may name an image of the store.
func parseAny(ref string) (parsed, error) {
	if imageID.MatchString(ref) {
		return parsed{id: "sha256:" + strings.TrimPrefix(ref, "sha256:")}, nil
	}
	named, err := parseName(ref)
	return parsed{name: named}, err
}

// parseName completes a reference as docker does. A reference with both a tag and a digest loses the tag: the digest
// is what decides.
func parseName(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w; it should look like [host[:port]/]path[:tag][@sha256:digest] in lower case: %w",
			ref, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}
