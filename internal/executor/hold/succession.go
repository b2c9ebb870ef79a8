package hold

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
)

// Estate is what a process hands to the keeper that it becomes by execve: a worker whose keeper has died becomes
// the keeper itself, because it is the parent of the containers, and nobody else has their pipes and ptys.
type Estate struct {
	Listener protocol.FD `json:"listener"`
	Holdings []Bequest   `json:"holdings"`
}

// Bequest is a holding with the numbers of its descriptors, in the order of its Names.
type Bequest struct {
	Holding
	FDs []protocol.FD `json:"fds"`
}

// fds returns all descriptors.
func (e *Estate) fds() []protocol.FD {
	fds := []protocol.FD{e.Listener}
	for _, b := range e.Holdings {
		fds = append(fds, b.FDs...)
	}
	return fds
}

// Bequeath writes the estate to a file in memory, and lets that and the descriptors in it survive the execve that must
// follow. It returns the file's descriptor.
func (e *Estate) Bequeath() (protocol.FD, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return -1, err
	}
	mem, err := unix.MemfdCreate("estate", 0)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if _, err := unix.Pwrite(mem, raw, 0); err != nil {
		unix.Close(mem)
		return -1, fmt.Errorf("write the estate: %w", err)
	}
	for _, fd := range e.fds() {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			unix.Close(mem)
			return -1, fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return protocol.FD(mem), nil
}

// Inherit reads an estate, and keeps its descriptors from being inherited any further.
func Inherit(mem protocol.FD) (*Estate, error) {
	f := mem.File("estate")
	defer f.Close()
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, protocol.MaxPayload))
	if err != nil {
		return nil, err
	}
	var e Estate
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("estate: %w", err)
	}
	for _, fd := range e.fds() {
		unix.CloseOnExec(int(fd))
	}
	return &e, nil
}
