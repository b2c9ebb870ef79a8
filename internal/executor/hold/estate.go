package hold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
)

// The versions of an estate that this program reads and writes. An estate is read whole or not at all: what is not known of it would be lost, and with
// it what a container hangs on. So a new field is a new version, and a program writes the version that its heir asks for.
const (
	EstateVersion    = 1
	MinEstateVersion = 1
)

// Estate is what a process hands to the keeper that it becomes by execve: a keeper that goes on as another program, or a worker whose keeper has
// died and who becomes the keeper itself, because it is the parent of the containers, and nobody else has their pipes and ptys.
//
// Format: one JSON document in a memory file; descriptors are the numbers that they have in the process.
type Estate struct {
	Version  int         `json:"version"`
	Build    string      `json:"build"` // of who wrote it
	Listener protocol.FD `json:"listener"`
	// Lock is the directory's lock, which is held by it; nil: it is to be taken.
	Lock *protocol.FD `json:"lock,omitempty"`
	// Worker is the worker that has stopped to work, and waits for its end; nil: there is none. While it is there it makes the keeper's death good.
	Worker *Retired `json:"worker,omitempty"`
	// Program is the program of who wrote the estate, sealed: to go back to, should the heir not get on; nil: it cannot be gone back to.
	Program *protocol.FD `json:"program,omitempty"`
	// Holdings are in no order.
	Holdings []Bequest `json:"holdings"`
}

// Retired is a worker that waits for its end: a child of the process, not reaped.
type Retired struct {
	PID int `json:"pid"`
	// Channel is the keeper's end of their socket pair. As long as it is open, the worker knows that there is a keeper.
	Channel protocol.FD `json:"channel"`
}

// Bequest is a holding with the numbers of its descriptors, in the order of its Names.
type Bequest struct {
	Holding
	FDs  []protocol.FD `json:"fds"`
	Exit *journal.Exit `json:"exit,omitempty"` // set: the process has ended so
}

// fds returns all descriptors.
func (e *Estate) fds() []protocol.FD {
	fds := []protocol.FD{e.Listener}
	for _, fd := range []*protocol.FD{e.Lock, e.Program} {
		if fd != nil {
			fds = append(fds, *fd)
		}
	}
	if e.Worker != nil {
		fds = append(fds, e.Worker.Channel)
	}
	for _, b := range e.Holdings {
		fds = append(fds, b.FDs...)
	}
	return fds
}

// Encode writes the estate down as the given version.
func (e *Estate) Encode(version int) ([]byte, error) {
	if version < MinEstateVersion || version > EstateVersion {
		return nil, fmt.Errorf("an estate of version %d is wanted, this program (%s) writes versions %d to %d", version, e.Build, MinEstateVersion, EstateVersion)
	}
	e.Version = version
	if e.Holdings == nil {
		e.Holdings = []Bequest{}
	}
	return json.Marshal(e)
}

// DecodeEstate reads what Encode has written. It refuses what this program does not know.
func DecodeEstate(raw []byte) (*Estate, error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &v); err != nil { // also where there is more behind it
		return nil, fmt.Errorf("estate: %w", err)
	}
	if v.Version < MinEstateVersion || v.Version > EstateVersion {
		return nil, fmt.Errorf("the estate has version %d, this program reads versions %d to %d", v.Version, MinEstateVersion, EstateVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var e Estate
	if err := dec.Decode(&e); err != nil {
		return nil, fmt.Errorf("estate of version %d: %w", v.Version, err)
	}
	return &e, e.check()
}

// check finds what no program writes.
func (e *Estate) check() error {
	seen := map[protocol.FD]bool{}
	for _, fd := range e.fds() {
		if int(fd) <= unix.Stderr || seen[fd] {
			return fmt.Errorf("estate: descriptor %d is named twice, or is none that can be left to somebody", fd)
		}
		seen[fd] = true
	}
	keys := map[string]bool{}
	for _, b := range e.Holdings {
		if b.Key == "" || keys[b.Key] || len(b.Names) != len(b.FDs) {
			return fmt.Errorf("estate: holding %q is there twice, or has %d names for %d descriptors", b.Key, len(b.Names), len(b.FDs))
		}
		keys[b.Key] = true
	}
	return nil
}

// Bequeath writes the estate to a file in memory, and lets that and the descriptors in it survive the execve that must
// follow. It returns the file's descriptor. Undo takes that back, where execve has failed.
func (e *Estate) Bequeath(version int) (mem protocol.FD, undo func(), err error) {
	raw, err := e.Encode(version)
	if err != nil {
		return -1, nil, err
	}
	m, err := unix.MemfdCreate("estate", 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	undo = func() {
		unix.Close(m)
		for _, fd := range e.fds() {
			unix.CloseOnExec(int(fd))
		}
	}
	for at := 0; at < len(raw); {
		n, err := unix.Pwrite(m, raw[at:], int64(at))
		if err != nil {
			undo()
			return -1, nil, fmt.Errorf("write the estate: %w", err)
		}
		at += n
	}
	for _, fd := range e.fds() {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			undo()
			return -1, nil, fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return protocol.FD(m), undo, nil
}

// maxEstate bounds what is read of an estate, in bytes: some hundred for each container.
const maxEstate = 64 << 20

// Inherit reads an estate, and keeps its descriptors from being inherited any further.
func Inherit(mem protocol.FD) (*Estate, error) {
	f := mem.File("estate")
	defer f.Close()
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxEstate))
	if err != nil {
		return nil, err
	}
	e, err := DecodeEstate(raw)
	if err != nil {
		return nil, err
	}
	for _, fd := range e.fds() {
		unix.CloseOnExec(int(fd))
	}
	return e, nil
}

// Range is a range of versions, both ends included.
type Range struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// EstateVersions are those of this program.
var EstateVersions = Range{MinEstateVersion, EstateVersion}

func (r Range) String() string { return fmt.Sprintf("%d to %d", r.Min, r.Max) }

// Common is the newest version that is in both.
func (r Range) Common(o Range) (version int, ok bool) {
	version = min(r.Max, o.Max)
	return version, version >= max(r.Min, o.Min)
}

// Heir is the first line that a program says which is asked whether it can go on with an estate ("monopod-executor heir"). Then it reads the estate, to
// its end, and says a Verdict. It does nothing with it.
type Heir struct {
	Build string `json:"build"`
	// Estate are the versions of an estate that it reads.
	Estate Range `json:"estate"`
}

// Verdict is its second line.
type Verdict struct {
	Refused string `json:"refused,omitempty"` // why it cannot; empty: it can
}
