package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
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
				s := &Store{limits: newLimits()}
				_, err := s.readArchive(t.Context(), from)
				var passed *sourceError
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
			if _, err := (&Store{limits: newLimits()}).readArchive(t.Context(), bytes.NewReader(stream[:at])); !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s, cut after %d bytes: %v", name, at, err)
			}
		}
	}
}

// Streams that ask for large windows wait for one another; others do not wait.
func TestZstdWindows(t *testing.T) {
	windows := newLimits().windows
	plain := bytes.Repeat([]byte("x"), 100)
	usual := compressed(t, plain, asZstd)
	// A window of 64 MiB, and one block that repeats a byte 100 times (RFC 8878, sections 3.1.1.1.2 and 3.1.1.2).
	large := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 16 << 3, 0x23, 0x03, 0, 'x'}
	read := func(ctx context.Context, stream []byte) (func(), error) {
		r, end, err := decompress(ctx, bytes.NewReader(stream), windows)
		if err == nil {
			var got []byte
			if got, err = io.ReadAll(r); err == nil && !bytes.Equal(got, plain) {
				err = errors.New("other bytes came out")
			}
		}
		return end, err
	}
	var ends []func()
	for range 2 {
		end, err := read(t.Context(), large)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read(ctx, large); !errors.Is(err, context.Canceled) {
		t.Errorf("a third one: %v", err)
	}
	for range maxLayersAtOnce {
		end, err := read(t.Context(), usual)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	ends[0]()
	end, err := read(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	end()
	ends[1]()
}
