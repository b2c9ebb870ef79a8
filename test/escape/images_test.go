package escape

import (
	"os"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// base is the image that all others build on: busybox, and this test's binary as /attack.
const base = "localhost/escape/base:1"

var baseLayers = sync.OnceValues(func() (img ociarchive.Image, err error) {
	if img, err = images.Busybox(base); err != nil {
		return img, err
	}
	self, err := os.ReadFile("/proc/self/exe")
	img.Layers = append(img.Layers, ociarchive.Layer{{Path: "attack", Data: self, Mode: 0o755}})
	img.Uncompressed = true
	return img, err
})

func baseImage(t *testing.T) ociarchive.Image {
	t.Helper()
	img, err := baseLayers()
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// hostileImage is the base with one more layer, and what change makes of its configuration (nil: nothing).
func hostileImage(t *testing.T, name string, layer ociarchive.Layer, change func(*ocispec.ImageConfig)) ociarchive.Image {
	t.Helper()
	img := baseImage(t)
	img.Name = name
	img.Layers = append(img.Layers[:len(img.Layers):len(img.Layers)], layer)
	if change != nil {
		img.Config.Env = append([]string{}, img.Config.Env...)
		change(&img.Config)
	}
	return img
}
