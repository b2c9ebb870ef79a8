package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/faults"
)

// Limits of an archive. What is beyond is no image.
const (
	maxArchiveFiles = 100_000
	maxArchiveBytes = 1 << 40
	maxArchiveJSON  = 8 << 20
	maxArchiveLinks = 40 // of a chain
)

// archiveFiles is what an archive has: its files are in the store, each under the digest of what it really holds.
type archiveFiles struct {
	layout []byte                        // the file oci-layout
	docker []byte                        // the file manifest.json
	blobs  map[string]ocispec.Descriptor // digest and size, by name
	links  map[string]string             // name to name: symbolic and hard links
}

// keepFile stores a file of an archive. want is empty, or the digest that it must have.
type keepFile func(ctx context.Context, name string, want digest.Digest, size int64, r io.Reader) (digest.Digest, error)

// readArchiveFiles reads a tar to its end. The names in it are names, they are never used as paths.
func readArchiveFiles(ctx context.Context, r io.Reader, keep keepFile) (*archiveFiles, error) {
	a := &archiveFiles{blobs: map[string]ocispec.Descriptor{}, links: map[string]string{}}
	tr := tar.NewReader(r)
	total := int64(0)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if err := decompress.Drain(r); err != nil {
				return nil, damaged(err)
			}
			return a, a.known(n)
		}
		if n == 0 && (err == tar.ErrHeader || err == io.ErrUnexpectedEOF) { // themselves: within another error they are about something else
			return nil, fmt.Errorf("the archive is no tar, compressed or not: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		if err != nil {
			return nil, damaged(err)
		}
		if total += h.Size; n >= maxArchiveFiles || total > maxArchiveBytes || total < 0 {
			return nil, fmt.Errorf("the archive has more than %d files or %d bytes: %w", maxArchiveFiles, int64(maxArchiveBytes), errdefs.ErrInvalidArgument)
		}
		if err := a.take(ctx, h, tr, keep); err != nil {
			return nil, err
		}
	}
}

// known refuses a tar that holds something else.
func (a *archiveFiles) known(files int) error {
	if a.layout != nil || a.docker != nil {
		return nil
	}
	what := "a tar without oci-layout and manifest.json"
	if files == 0 {
		what = "empty"
	}
	return fmt.Errorf("the archive is %s; it should be an OCI image layout or the output of docker save: %w", what, errdefs.ErrInvalidArgument)
}

// damaged gives the archive the fault, unless whoever sends it, or the disk, has it.
func damaged(err error) error {
	var disk *storeError
	if faults.OfSource(err) {
		return fmt.Errorf("receiving the archive: %w", faults.Classify(err))
	}
	if errors.As(err, &disk) || errdefs.Resolve(err) != errdefs.ErrUnknown {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the archive is cut off: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("the archive is damaged, or no tar: %w: %w", err, errdefs.ErrInvalidArgument)
}

// stored marks the errors of the store, so that a disk that fails is not taken for an archive that is damaged.
type stored struct{ io.Writer }

type storeError struct{ err error }

func (e *storeError) Error() string { return "storing it: " + e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func (s stored) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = &storeError{err}
	}
	return n, err
}

// take takes one entry.
func (a *archiveFiles) take(ctx context.Context, h *tar.Header, data io.Reader, keep keepFile) error {
	name := path.Clean("/" + h.Name)[1:]
	if slices.Contains(strings.Split(h.Name, "/"), "..") {
		return fmt.Errorf("the archive has a file %q, whose name leads out of it: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	delete(a.blobs, name) // as in any tar, the last one of a name counts
	delete(a.links, name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		a.links[name] = path.Join("/", path.Dir(name), h.Linkname)[1:]
		if path.IsAbs(h.Linkname) {
			a.links[name] = path.Clean(h.Linkname)[1:]
		}
		return nil
	case tar.TypeLink:
		a.links[name] = path.Clean("/" + h.Linkname)[1:]
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
	default:
		return nil
	}
	switch name {
	case ocispec.ImageLayoutFile:
		return readJSONFile(name, h.Size, data, &a.layout)
	case dockerManifestFile:
		return readJSONFile(name, h.Size, data, &a.docker)
	}
	has, err := keep(ctx, name, blobDigest(name), h.Size, data)
	if err != nil {
		return fmt.Errorf("file %q: %w", h.Name, damaged(err))
	}
	a.blobs[name] = ocispec.Descriptor{Digest: has, Size: h.Size}
	return nil
}

func readJSONFile(name string, size int64, r io.Reader, to *[]byte) error {
	if size > maxArchiveJSON {
		return fmt.Errorf("file %q has %d bytes, at most %d are possible: %w", name, size, maxArchiveJSON, errdefs.ErrInvalidArgument)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("file %q: %w", name, damaged(err))
	}
	*to = append([]byte{}, data...)
	return nil
}

// blobDigest is the digest that the name of a file in an OCI layout promises, or "".
func blobDigest(name string) digest.Digest {
	rest, ok := strings.CutPrefix(name, ocispec.ImageBlobsDir+"/")
	if !ok {
		return ""
	}
	algorithm, hex, _ := strings.Cut(rest, "/")
	d := digest.NewDigestFromEncoded(digest.Algorithm(algorithm), hex)
	if d.Validate() != nil {
		return ""
	}
	return d
}

// file finds a file by the name that a document of the archive gives it.
func (a *archiveFiles) file(in, name string) (ocispec.Descriptor, error) {
	at := path.Clean("/" + name)[1:]
	for range maxArchiveLinks {
		if desc, ok := a.blobs[at]; ok {
			return desc, nil
		}
		to, ok := a.links[at]
		if !ok {
			return ocispec.Descriptor{}, fmt.Errorf("%s names the file %q, which is not in the archive: %w", in, name, errdefs.ErrInvalidArgument)
		}
		at = to
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s names the file %q, whose links lead in a circle: %w", in, name, errdefs.ErrInvalidArgument)
}

// blob finds a blob of an OCI layout, of the size that a document says.
func (a *archiveFiles) blob(in string, desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("%s names the digest %q: %w: %w", in, desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	has, err := a.file(in, blobPath(desc.Digest))
	if err != nil {
		return err
	}
	if has.Digest != desc.Digest || has.Size != desc.Size {
		return fmt.Errorf("%s says that %s has %d bytes, in the archive it has %d and the digest %s: %w",
			in, desc.Digest, desc.Size, has.Size, has.Digest, errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkLayout refuses what is not an OCI layout of the version that we know.
func (a *archiveFiles) checkLayout() error {
	var layout ocispec.ImageLayout
	if err := json.Unmarshal(a.layout, &layout); err != nil {
		return fmt.Errorf("%s: %w: %w", ocispec.ImageLayoutFile, err, errdefs.ErrInvalidArgument)
	}
	if layout.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%s: the layout has version %q, only %s is known: %w", ocispec.ImageLayoutFile, layout.Version, ocispec.ImageLayoutVersion, errdefs.ErrInvalidArgument)
	}
	return nil
}

// dockerImages reads manifest.json.
func (a *archiveFiles) dockerImages() ([]dockerImage, error) {
	var list []dockerImage
	if err := json.Unmarshal(a.docker, &list); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dockerManifestFile, err, errdefs.ErrInvalidArgument)
	}
	return list, nil
}

// foreign names the compression of an archive that we do not read.
func foreign(begin []byte) string {
	for name, magic := range map[string]string{"xz": "\xfd7zXZ\x00", "bzip2": "BZh", "lz4": "\x04\x22\x4d\x18"} {
		if bytes.HasPrefix(begin, []byte(magic)) {
			return name
		}
	}
	return ""
}
