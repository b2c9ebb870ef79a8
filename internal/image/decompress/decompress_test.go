package decompress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

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

// Streams that ask for large windows wait for one another; others do not wait.
func TestZstdWindows(t *testing.T) {
	windows := NewWindows()
	plain := bytes.Repeat([]byte("x"), 100)
	usual := compressed(t, plain, asZstd)
	// A window of 64 MiB, and one block that repeats a byte 100 times (RFC 8878, sections 3.1.1.1.2 and 3.1.1.2).
	large := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 16 << 3, 0x23, 0x03, 0, 'x'}
	read := func(ctx context.Context, stream []byte) (func(), error) {
		r, end, err := Open(ctx, bytes.NewReader(stream), windows)
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
	for range 6 {
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

// FuzzStream decompresses: an error is the stream's fault, unless it is the reader's below.
func FuzzStream(f *testing.F) {
	plain := bytes.Repeat([]byte("some text, "), 50)
	for _, seed := range [][]byte{plain, compressed(f, plain, asGzip), compressed(f, plain, asZstd), {0x28, 0xb5, 0x2f, 0xfd, 0, 0x98}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, end, err := Open(t.Context(), faults.Source(bytes.NewReader(stream)), NewWindows())
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 8<<20))
			end()
		}
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Fatalf("the error has another class: %v", err)
		}
	})
}
