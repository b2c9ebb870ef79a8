package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/image/faults"
)

// Downloads are the files of the compressed layers that are on their way, each with the layer's digest and a part of the digest of who sends it for its
// name, and the begin of the layer for its content.
// What a power loss may have torn is not gone on with: the files are in a folder of this boot.
//
// Who is about to need a layer holds it: a layer that two images (or two places of one image) have is downloaded once,
// and removed when the last one has unpacked it. Whoever writes a file or reads it sees to it that nobody else does.
type Downloads struct {
	root string // for all boots
	dir  string // of this boot

	mu   sync.Mutex
	held map[string]int
}

// DownloadName is the name of what a registry sends of a layer.
func DownloadName(registry string, layer digest.Digest) string {
	return layer.Algorithm().String() + "-" + layer.Encoded() + "." + digest.FromString(registry).Encoded()[:16]
}

// openDownloads drops what earlier boots left.
func openDownloads(root, boot string) (*Downloads, error) {
	d := &Downloads{root: root, dir: filepath.Join(root, boot), held: map[string]int{}}
	old, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range old {
		if e.Name() != boot {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil && !faults.DiskFull(err) { // Open makes it later
		return nil, err
	}
	return d, nil
}

func (d *Downloads) path(name string) string { return filepath.Join(d.dir, name) }

// Hold says that somebody is about to need what is called so.
func (d *Downloads) Hold(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[name]++
}

// Release gives a hold up. With drop, nobody is to go on with the file: it goes with its last holder.
func (d *Downloads) Release(name string, drop bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[name]--; d.held[name] > 0 {
		return nil
	}
	delete(d.held, name)
	if info, err := os.Stat(d.path(name)); err != nil || (info.Size() > 0 && !drop) {
		return nil
	}
	return d.Remove(name)
}

// Remove removes a file, if it is there.
func (d *Downloads) Remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes what nobody has gone on with for so long.
func (d *Downloads) sweep(age time.Duration, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	errs = append(errs, d.walk(func(e fs.DirEntry, info fs.FileInfo) {
		if d.held[e.Name()] == 0 && now.Sub(info.ModTime()) >= age {
			if err := os.Remove(filepath.Join(d.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}))
	return errors.Join(errs...)
}

// usage is what the downloads take on the disk.
func (d *Downloads) usage() (bytes, inodes uint64, err error) {
	err = d.walk(func(_ fs.DirEntry, info fs.FileInfo) {
		bytes += uint64(info.Size())
		inodes++
	})
	return bytes, inodes, err
}

func (d *Downloads) walk(each func(fs.DirEntry, fs.FileInfo)) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		each(e, info)
	}
	return nil
}

// Open opens a file, new or with what an earlier download has left.
func (d *Downloads) Open(name string) (*os.File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // the disk was full when the store was opened
		if err = os.MkdirAll(d.dir, 0o700); err == nil {
			f, err = os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	return f, err
}
