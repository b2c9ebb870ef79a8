package store

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/ids"
)

// publish names an image without layers.
func publish(t *testing.T, s *Store, name string) Image {
	t.Helper()
	ctx := s.Scope(t.Context())
	held, transfer, err := s.Begin(ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer transfer.End(ctx, false)
	write := func(raw []byte, desc ocispec.Descriptor) {
		t.Helper()
		if err := content.WriteBlob(held, s.Content, desc.Digest.String(), bytes.NewReader(raw), desc); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(ocispec.Image{Config: ocispec.ImageConfig{Cmd: []string{name}}})
	if err != nil {
		t.Fatal(err)
	}
	config := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	write(raw, config)
	raw, target, err := document.MakeManifest(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(raw, target)
	if err := transfer.Publish(held, Naming{Target: target, Names: []string{name}}); err != nil {
		t.Fatal(err)
	}
	img, err := s.Get(t.Context(), name)
	if err != nil || img.ID != ids.ImageID(config.Digest) {
		t.Fatal(img, err)
	}
	return img
}

func openStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A removal that has found a name broken, while a pull makes its image whole, leaves nothing listed that is not there.
func TestRemoveBrokenAgainstPull(t *testing.T) {
	s := openStore(t)
	const name = "docker.io/library/x:1"
	publish(t, s, name)
	ref, err := imageref.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.removeBroken(s.Scope(t.Context()), ref); err != nil {
		t.Fatal(err)
	}
	if img, err := s.Get(t.Context(), name); !errdefs.IsNotFound(err) {
		t.Errorf("its name is gone, and it is there: %+v, %v", img, err)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// What a transfer has brought is collected when it ends without a name, and stays when it is kept.
func TestTransferHolds(t *testing.T) {
	s := openStore(t)
	ctx := s.Scope(t.Context())
	raw := []byte("something")
	desc := ocispec.Descriptor{Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	for _, keep := range []bool{true, false} {
		held, transfer, err := s.Begin(ctx, "test")
		if err != nil {
			t.Fatal(err)
		}
		if err := content.WriteBlob(held, s.Content, "x", bytes.NewReader(raw), desc); err != nil {
			t.Fatal(err)
		}
		if err := s.garbage.collect(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Content.Info(ctx, desc.Digest); err != nil {
			t.Errorf("under way: %v", err)
		}
		transfer.End(ctx, keep)
		if err := s.garbage.collect(ctx); err != nil {
			t.Fatal(err)
		}
		// Of the transfer before, which was kept, a lease holds it still: it is given up.
		if !keep {
			all, err := s.leases.List(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				if err := s.Drop(ctx, nil, []string{l.ID}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := s.Content.Info(ctx, desc.Digest); errdefs.IsNotFound(err) == keep {
			t.Errorf("kept %v: %v", keep, err)
		}
	}
}
