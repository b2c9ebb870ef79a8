package archive

import (
	"slices"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestAllNames(t *testing.T) {
	at := ocispec.Descriptor{Digest: "sha256:" + digest.Digest(strings.Repeat("a", 64))}
	const id = "sha256:id"
	for name, c := range map[string]struct {
		img  Image
		want []string
	}{
		"no name":       {Image{Target: at}, []string{id}},
		"a tag":         {Image{Target: at, Names: []string{"docker.io/library/a:1"}}, []string{"docker.io/library/a:1", "docker.io/library/a@" + at.Digest.String()}},
		"two tags":      {Image{Target: at, Names: []string{"h.example/a:1", "h.example/a:2"}}, []string{"h.example/a:1", "h.example/a:2", "h.example/a@" + at.Digest.String()}},
		"made here":     {Image{Target: at, Names: []string{"h.example/a:1"}, Made: true}, []string{"h.example/a:1"}},
		"made, no name": {Image{Target: at, Made: true}, []string{id}},
	} {
		if got := c.img.AllNames(id); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
