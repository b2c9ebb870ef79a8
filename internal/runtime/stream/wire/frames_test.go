package wire

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/moby/spdystream/spdy"
)

// FuzzSplitter: whatever comes, frames are as long as they say, data frames are small, and all data of a stream is there in order.
func FuzzSplitter(f *testing.F) {
	var some bytes.Buffer
	framer, err := spdy.NewFramer(&some, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, frame := range []spdy.Frame{
		&spdy.PingFrame{Id: 1}, &spdy.DataFrame{StreamId: 1, Data: []byte("abc")}, &spdy.DataFrame{StreamId: 1, Data: bytes.Repeat([]byte("0123456789"), 10000)},
		&spdy.DataFrame{StreamId: 3, Flags: spdy.DataFlagFin, Data: make([]byte, 2*maxPiece)}, &spdy.DataFrame{StreamId: 1, Flags: spdy.DataFlagFin},
	} {
		if err := framer.WriteFrame(frame); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(some.Bytes())
	f.Add([]byte{0, 0, 0, 1, 1, 0xff, 0xff, 0xff, 'x'})
	f.Add([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, wantEnded := contents(raw, 1<<24)
		split, err := io.ReadAll(&splitter{Conn: readConn{r: bytes.NewReader(raw)}})
		if err != nil && err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		got, ended := contents(split, maxPiece)
		if got == nil {
			t.Fatalf("a frame of more than %d bytes", maxPiece)
		}
		for id, data := range want {
			if !bytes.Equal(got[id], data) || wantEnded[id] != ended[id] {
				t.Errorf("stream %d: %d bytes, ended %t; want %d, %t", id, len(got[id]), ended[id], len(data), wantEnded[id])
			}
		}
	})
}

// contents reads the data of each stream, and which streams end; nil if a data frame is too large. What is cut off counts as far as
// it is there.
func contents(raw []byte, largest int) (data map[byte][]byte, ended map[byte]bool) {
	data, ended = map[byte][]byte{}, map[byte]bool{}
	for len(raw) >= frameHead {
		n := int(raw[5])<<16 | int(raw[6])<<8 | int(raw[7])
		body := raw[frameHead:min(len(raw), frameHead+n)]
		if raw[0]&0x80 == 0 {
			if n > largest {
				return nil, nil
			}
			id := raw[0] ^ raw[1] ^ raw[2] ^ raw[3] // good enough to tell streams apart
			data[id] = append(data[id], body...)
			ended[id] = ended[id] || raw[4]&1 != 0 && len(body) == n
		}
		raw = raw[frameHead+len(body):]
		if len(body) < n {
			break
		}
	}
	return data, ended
}

type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.r.Read(p) }
