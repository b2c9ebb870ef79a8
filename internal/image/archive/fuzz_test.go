package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// FuzzArchive takes archives apart: whatever is in them, no name leads anywhere but to a file of the archive.
func FuzzArchive(f *testing.F) {
	seed := func(headers ...tar.Header) {
		var out bytes.Buffer
		tw := tar.NewWriter(&out)
		for _, h := range headers {
			data := h.Linkname
			if h.Typeflag == tar.TypeReg {
				h.Size, h.Linkname = int64(len(data)), ""
			}
			if err := tw.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				io.WriteString(tw, data) // into memory
			}
		}
		f.Add(out.Bytes())
	}
	reg := func(name, data string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: data}
	}
	seed(reg("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), reg("index.json", `{"manifests":[]}`), reg("blobs/sha256/"+strings.Repeat("a", 64), "x"))
	seed(reg("manifest.json", `[{"Config":"c.json","RepoTags":["a:1"],"Layers":["a/layer.tar","l"]}]`), reg("c.json", "{}"), reg("a/layer.tar", ""),
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "./a/../a/layer.tar"}, tar.Header{Name: "m", Typeflag: tar.TypeLink, Linkname: "l"})
	seed(reg("../x", "x"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		var kept []string
		keep := func(_ context.Context, name string, _ digest.Digest, size int64, r io.Reader) (digest.Digest, error) {
			if size > 1<<20 {
				return "", io.ErrUnexpectedEOF
			}
			if name != path.Clean("/" + name)[1:] {
				t.Fatalf("the name %q is not clean", name)
			}
			data, err := io.ReadAll(r)
			kept = append(kept, name)
			return digest.FromBytes(data), err
		}
		a, err := readArchiveFiles(t.Context(), bytes.NewReader(archive), keep)
		if err != nil {
			return
		}
		if a.layout != nil {
			_ = a.checkLayout()
		}
		_ = a.blob("x", ocispec.Descriptor{Digest: "sha256:" + digest.Digest(strings.Repeat("a", 64))})
		list, err := a.dockerImages()
		if err != nil {
			return
		}
		for _, img := range list {
			for _, name := range append(img.Layers, img.Config) {
				desc, err := a.file("manifest.json", name)
				if err == nil && (desc.Digest.Validate() != nil || len(kept) == 0) {
					t.Fatalf("%q is %+v", name, desc)
				}
			}
		}
	})
}
