package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/faults"
)

func compressed(t testing.TB, plain []byte, with func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := with(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asGzip(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func asZstd(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }

// An error of whoever sends the bytes stays that, also when it looks like one of a decompressor, at every place of the stream.
func TestErrorsOfTheSource(t *testing.T) {
	var plain bytes.Buffer
	tw := tar.NewWriter(&plain)
	data := strings.Repeat("some text, and more; ", 20000)
	if err := tw.WriteHeader(&tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tw, data); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the cable was cut")
	for name, stream := range map[string][]byte{
		"plain": plain.Bytes(), "gzip": compressed(t, plain.Bytes(), asGzip), "zstd": compressed(t, plain.Bytes(), asZstd),
	} {
		for _, why := range []error{broken, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
			for _, at := range []int{0, 5, 11, len(stream) / 2, len(stream) - 1, len(stream)} {
				from := io.MultiReader(bytes.NewReader(stream[:at]), iotest.ErrReader(why))
				r := &Reader{Windows: decompress.NewWindows()}
				_, err := r.Read(t.Context(), from)
				var passed *faults.SourceError
				if !errors.As(err, &passed) || !errors.Is(err, why) || errdefs.IsInvalidArgument(err) {
					t.Errorf("%s, %v after %d bytes: %v", name, why, at, err)
				}
				if errdefs.IsUnavailable(err) != (why == io.ErrUnexpectedEOF) {
					t.Errorf("%s, %v after %d bytes: another class: %v", name, why, at, err)
				}
			}
		}
		// The same places, when that is all there is, are the archive's fault.
		for _, at := range []int{5, 11, len(stream) / 2} {
			if _, err := (&Reader{Windows: decompress.NewWindows()}).Read(t.Context(), bytes.NewReader(stream[:at])); !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s, cut after %d bytes: %v", name, at, err)
			}
		}
	}
}
