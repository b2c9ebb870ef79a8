package wire

import (
	"encoding/binary"
	"io"
	"net"
)

// maxPiece bounds the data frames that spdystream gets to see, in bytes. It reads frames of up to 16 MiB whole, and queues 250 of a
// connection.
const maxPiece = 32 << 10

// Of the head of a SPDY frame: a bit says control frame; the second half is flags and 24 bits of length.
const (
	frameHead   = 8
	controlBit  = 1 << 31
	flagFin     = 1 << 24
	lengthBits  = 1<<24 - 1
	flagsOfHead = 0xff << 24
)

// splitter is a connection of SPDY frames of which the large ones with data come in pieces, each a frame of its own. It costs no
// memory.
type splitter struct {
	net.Conn
	head []byte // of a frame, still to be handed out
	left uint32 // bytes of the frame's rest, to be passed through after its head
	// Of a data frame, after this piece of it.
	rest          uint32
	stream, flags uint32
	buf           [frameHead]byte
}

// Read implements io.Reader.
func (s *splitter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(s.head) == 0 && s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if len(s.head) > 0 {
		n := copy(p, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	n, err := s.Conn.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n)
	return n, err
}

// next makes the head of the next frame, or of the next piece.
func (s *splitter) next() error {
	if s.rest > 0 {
		s.piece()
		return nil
	}
	if _, err := io.ReadFull(s.Conn, s.buf[:]); err != nil {
		return err
	}
	first, second := binary.BigEndian.Uint32(s.buf[:4]), binary.BigEndian.Uint32(s.buf[4:])
	if first&controlBit != 0 {
		s.head, s.left = s.buf[:], second&lengthBits
		return nil
	}
	s.stream, s.flags, s.rest = first, second&flagsOfHead, second&lengthBits
	s.piece()
	return nil
}

// piece begins a piece of a data frame. The last one ends the stream, if the frame does.
func (s *splitter) piece() {
	n := min(s.rest, maxPiece)
	s.rest -= n
	flags := s.flags
	if s.rest > 0 {
		flags &^= flagFin
	}
	binary.BigEndian.PutUint32(s.buf[:4], s.stream)
	binary.BigEndian.PutUint32(s.buf[4:], flags|n)
	s.head, s.left = s.buf[:], n
}
