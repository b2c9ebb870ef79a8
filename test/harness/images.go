package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// ImageMaker makes an image of the given full name, as the functions of package images do.
type ImageMaker func(name string) (ociarchive.Image, error)

// Archive writes one image as an archive that `monopod image load` reads, and returns its path.
func Archive(t testing.TB, name string, makeImage ImageMaker) string {
	t.Helper()
	img, err := makeImage(name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := images.WriteArchive(path, img); err != nil {
		t.Fatal(err)
	}
	return path
}

// PushImages starts a registry on loopback for the time of the test, pushes the images, by repository, with the tag "1",
// and returns the hosts.toml that makes them reachable under the given host name.
func PushImages(t testing.TB, host string, repositories map[string]ImageMaker) (hostsTOML map[string]string) {
	t.Helper()
	reg := images.NewRegistry(t, images.RegistryConfig{})
	for repository, makeImage := range repositories {
		img, err := makeImage(host + "/" + repository + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reg.Push(context.Background(), img, repository, "1"); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{host: fmt.Sprintf("server = \"http://%s\"\n", reg.Addr)}
}
