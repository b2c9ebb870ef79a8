package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// wire plays a socket from a byte slice, which brings no descriptors.
type wire struct{ *bytes.Reader }

func (w wire) ReadMsgUnix(b, _ []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	n, err = w.Read(b)
	return n, 0, 0, nil, err
}

func frame(nfds byte, payload string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	return append(append(b, nfds, 0, 0, 0), payload...)
}

func TestReadFrame(t *testing.T) {
	tooLong := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	for name, tc := range map[string]struct {
		in   []byte
		want string
		err  error
	}{
		"whole":           {frame(0, `{"a":1}`), `{"a":1}`, nil},
		"empty payload":   {frame(0, ""), "", nil},
		"end":             {nil, "", io.EOF},
		"cut header":      {frame(0, "x")[:5], "", errFrame},
		"cut payload":     {frame(0, "xyz")[:9], "", errFrame},
		"too long":        {tooLong, "", errFrame},
		"no descriptors":  {frame(1, "x"), "", errFrame},
		"reserved not 0":  {[]byte{0, 0, 0, 0, 0, 0, 0, 1}, "", errFrame},
		"too many rights": {frame(MaxFDs+1, "x"), "", errFrame},
	} {
		got, _, err := readFrame(wire{bytes.NewReader(tc.in)})
		if string(got) != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
			t.Errorf("%s: %q %v, want %q %v", name, got, err, tc.want, tc.err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, seed := range [][]byte{
		frame(0, `{"kind":"call","id":1,"method":"Hello","body":{"minVersion":1,"maxVersion":1}}`),
		frame(0, `{"kind":"reply","id":1,"error":{"class":"NotFound","message":"x"}}`),
		frame(2, `{}`), frame(0, `[`), {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, {0, 0, 0, 1},
		append(frame(0, `{"kind":"note","id":1}`), frame(0, `{"kind":"cancel","id":1}`)...),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := wire{bytes.NewReader(in)}
		for {
			payload, fds, err := readFrame(r)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errFrame) {
					t.Fatalf("error %v is neither the end nor a malformed frame", err)
				}
				return
			}
			if len(fds) != 0 || len(payload) > len(in) {
				t.Fatalf("%d descriptors, %d bytes out of %d", len(fds), len(payload), len(in))
			}
			var env envelope
			if json.Unmarshal(payload, &env) == nil && env.Error != nil {
				_ = env.Error.Unwrap().Error()
			}
		}
	})
}

// sockets returns a connected pair.
func sockets(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// A frame whose descriptors are not those announced is refused, and they are closed.
func TestDescriptorsNotAnnounced(t *testing.T) {
	a, b := sockets(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := a.WriteMsgUnix(frame(0, "x"), unix.UnixRights(int(w.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, _, err := readFrame(b); !errors.Is(err, errFrame) {
		t.Errorf("error %v, want a malformed frame", err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the descriptor that came along is still open: %v", err)
	}
}
