package cdispec

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// maxSpecSize bounds what is read of one file; the largest real specs have some hundred kilobytes.
const maxSpecSize = 16 << 20

// Reader reads specs, and remembers them as long as their files are the same: parsing takes longer than all else of an injection. The
// zero value is ready, and safe for concurrent use.
type Reader struct {
	mu   sync.Mutex
	read map[string]remembered
}

type remembered struct {
	version
	spec *specs.Spec
}

// version tells a file from what it was before, and from another file in its place.
type version struct {
	dev, ino uint64
	size     int64
	changed  unix.Timespec // ctime: nobody can set it
}

// settled is how long ago a file must have changed to be remembered: the kernel's clock of files is coarse, and what is written twice
// within one of its ticks looks the same.
const settled = time.Second

// Read returns the spec of a file. It is not to be changed. Errors of package os are returned as they are.
func (r *Reader) Read(path string) (*specs.Spec, error) {
	// A named pipe must not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is a %s, not a regular file", info.Mode().Type())
	}
	if info.Size() > maxSpecSize {
		return nil, tooLarge(info.Size())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	v := version{dev: st.Dev, ino: st.Ino, size: st.Size, changed: st.Ctim}
	r.mu.Lock()
	known, ok := r.read[path]
	r.mu.Unlock()
	if ok && known.version == v {
		return known.spec, nil
	}
	opened := time.Now()
	data, err := io.ReadAll(io.LimitReader(f, maxSpecSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSpecSize {
		return nil, tooLarge(int64(len(data)))
	}
	spec, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if opened.Sub(time.Unix(st.Ctim.Unix())) > settled {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.read == nil {
			r.read = map[string]remembered{}
		}
		r.read[path] = remembered{v, spec}
	}
	return spec, nil
}

func tooLarge(size int64) error {
	return fmt.Errorf("has %d bytes, more than the %d that a spec may have", size, maxSpecSize)
}

// keep forgets all files but these.
func (r *Reader) keep(files []*File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.read) <= len(files) {
		return
	}
	paths := map[string]bool{}
	for _, f := range files {
		paths[f.Path] = true
	}
	for path := range r.read {
		if !paths[path] {
			delete(r.read, path)
		}
	}
}
