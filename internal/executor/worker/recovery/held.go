//go:build cgo

package recovery

import (
	"os"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
)

// Held is what the keeper held under one key.
type Held struct {
	hold.Holding
	fds map[string]protocol.FD
}

// NewHeld returns a holding with the descriptors that came with it, in the order of its names.
func NewHeld(h hold.Holding, fds []protocol.FD) *Held {
	s := &Held{Holding: h, fds: map[string]protocol.FD{}}
	for i, fd := range fds {
		if i < len(h.Names) {
			s.fds[h.Names[i]] = fd
		} else {
			fd.Close()
		}
	}
	return s
}

// file takes a descriptor out as a non-blocking file; nil when it is not there.
func (s *Held) file(name string) *os.File {
	fd, ok := s.fds[name]
	if !ok {
		return nil
	}
	delete(s.fds, name)
	return fd.Pollable(name)
}

// close closes what has not been taken out.
func (s *Held) close() {
	for _, fd := range s.fds {
		fd.Close()
	}
	s.fds = nil
}
