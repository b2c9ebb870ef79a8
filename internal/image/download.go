package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// downloads are the compressed layers that are on their way, each a file whose name is the layer's digest and a part of the digest of who sends it, and whose
// content is its begin. A file is only ever appended to, so whatever ends a download, the next one goes on at its end.
// What a power loss may have torn is not gone on with: the files are in a folder of this boot.
//
// Who is about to need a layer holds it: a layer that two images (or two places of one image) have is downloaded once,
// and removed when the last one has unpacked it. Whoever writes a file or reads it has the lock of its name
// (Store.locks).
type downloads struct {
	root string // for all boots
	dir  string // of this boot
	room room.Room

	mu   sync.Mutex
	held map[string]int
}

// downloadName is the name of what a registry sends of a layer.
func downloadName(registry string, layer digest.Digest) string {
	return layer.Algorithm().String() + "-" + layer.Encoded() + "." + digest.FromString(registry).Encoded()[:16]
}

// openDownloads drops what earlier boots left.
func openDownloads(root, boot string) (*downloads, error) {
	d := &downloads{root: root, dir: filepath.Join(root, boot), held: map[string]int{}}
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
	if err := os.MkdirAll(d.dir, 0o700); err != nil && !faults.DiskFull(err) { // open makes it later
		return nil, err
	}
	return d, nil
}

func (d *downloads) path(name string) string { return filepath.Join(d.dir, name) }

func (d *downloads) hold(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[name]++
}

// release gives a hold up. With drop, nobody is to go on with the file: it goes with its last holder.
func (d *downloads) release(name string, drop bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[name]--; d.held[name] > 0 {
		return nil
	}
	delete(d.held, name)
	if info, err := os.Stat(d.path(name)); err != nil || (info.Size() > 0 && !drop) {
		return nil
	}
	return d.remove(name)
}

func (d *downloads) remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes what nobody has gone on with for so long.
func (d *downloads) sweep(age time.Duration, now time.Time) error {
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
func (d *downloads) usage() (bytes, inodes uint64, err error) {
	err = d.walk(func(_ fs.DirEntry, info fs.FileInfo) {
		bytes += uint64(info.Size())
		inodes++
	})
	return bytes, inodes, err
}

func (d *downloads) walk(each func(fs.DirEntry, fs.FileInfo)) error {
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

// blob is one layer while it comes in: it is read behind the writer.
type blob struct {
	desc    ocispec.Descriptor
	file    *os.File
	room    room.Room
	unasked int  // bytes written since there was last asked for room
	resumed bool // it went on where an earlier attempt ended: what it has may not fit together
	report  func(done int64)
	served  registry.Served // who sends it

	mu    sync.Mutex
	grown sync.Cond // have or err has changed
	have  int64
	ended bool
	err   error // why it ended; nil: all bytes are there

	read int64 // how far the reader is
}

// errStale says that a download went on with bytes which do not belong to the layer: begin anew.
var errStale = errors.New("what an earlier download left does not belong to the layer")

// open opens the file of a layer; what it has already need not be fetched.
func (d *downloads) open(name string, desc ocispec.Descriptor, report func(int64)) (*blob, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // the disk was full when the store was opened
		if err = os.MkdirAll(d.dir, 0o700); err == nil {
			f, err = os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	have := info.Size()
	if have > desc.Size {
		have = 0
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	b := &blob{desc: desc, file: f, room: d.room, have: have, resumed: have > 0, report: report}
	b.grown.L = &b.mu
	return b, nil
}

// fill fetches what is missing, and goes on after every failure that may pass. It always ends the blob.
func (b *blob) fill(ctx context.Context, from Source) error {
	err := b.fetchAll(ctx, from)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.err = true, err
	b.grown.Broadcast()
	return err
}

// minProgress is how much an attempt has to bring for the ones after it to be counted anew.
const minProgress = 64 << 10

func (b *blob) fetchAll(ctx context.Context, from Source) error {
	b.report(b.have)
	for try := 1; b.have < b.desc.Size; try++ {
		before := b.have
		err := b.fetch(ctx, from)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if b.have-before >= minProgress {
			try = 1
		}
		if !mayPass(err) {
			return err
		}
		if try > registry.MaxRetries && b.served.Distrust(err) {
			try = 1 // of another host
		}
		if try > registry.MaxRetries {
			return fmt.Errorf("the download broke at byte %d of %d, and %d more attempts did not help: %w", b.have, b.desc.Size, registry.MaxRetries, err)
		}
		if err := from.Pause(ctx, try); err != nil {
			return err
		}
	}
	return failpoint.Hit("image/download/complete")
}

// mayPass says whether a download that failed is worth another attempt.
func mayPass(err error) bool {
	if errors.Is(err, errWrite) || errors.Is(err, errStale) {
		return false // no attempt will help
	}
	return registry.MayPass(err)
}

var errWrite = errors.New("storing the download")

// bufferSize is what is taken of an answer at a time.
const bufferSize = 128 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// fetch makes one attempt.
func (b *blob) fetch(ctx context.Context, from Source) error {
	desc := b.desc
	desc.URLs = nil // a manifest does not send this machine to other hosts
	body, err := from.Fetch(b.served.In(ctx), desc)
	if err != nil {
		return err
	}
	defer body.Close()
	if b.have > 0 {
		b.resumed = true
		seeker, ok := body.(io.Seeker)
		if !ok {
			return fmt.Errorf("the registry client cannot go on with a download: %w", errdefs.ErrInternal)
		}
		if _, err := seeker.Seek(b.have, io.SeekStart); err != nil {
			return err
		}
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for b.have < b.desc.Size {
		n, err := body.Read(buf[:min(bufferSize, b.desc.Size-b.have)])
		if n > 0 {
			if err := b.append(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF && b.have < b.desc.Size {
			return b.wrongSize("only", b.have)
		}
		if err != nil && err != io.EOF {
			return b.rangeError(err)
		}
	}
	// One byte more: the end of the answer, after which its connection can be used again.
	switch n, err := body.Read(buf[:1]); {
	case n > 0, errdefs.IsFailedPrecondition(err):
		return b.wrongSize("more than", b.desc.Size)
	}
	return nil
}

func (b *blob) wrongSize(than string, n int64) error {
	err := fmt.Errorf("the registry has %s %d bytes of the layer, its manifest says %d: %w", than, n, b.desc.Size, errdefs.ErrFailedPrecondition)
	if b.beginAnew(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// beginAnew says whether a download whose bytes are wrong is worth another one, from the first byte: when it went on where
// an earlier one ended, or when the host is not the last one that can be asked.
func (b *blob) beginAnew(why error) bool {
	other := b.served.Distrust(why)
	return b.resumed || other
}

func (b *blob) append(p []byte) error {
	if err := failpoint.Hit("image/download/write"); err != nil {
		return err
	}
	if b.unasked += len(p); b.unasked >= room.AskEvery {
		b.unasked = 0
		if err := b.room.Check(); err != nil {
			return fmt.Errorf("%w: %w", errWrite, err)
		}
	}
	if _, err := b.file.WriteAt(p, b.have); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	b.mu.Lock()
	b.have += int64(len(p))
	b.grown.Broadcast()
	b.mu.Unlock()
	b.report(b.have)
	return nil
}

// Read implements io.Reader: it waits for bytes that are on their way.
func (b *blob) Read(p []byte) (int, error) {
	b.mu.Lock()
	for b.read == b.have && !b.ended {
		b.grown.Wait()
	}
	have, err := b.have, b.err
	b.mu.Unlock()
	if b.read < have {
		n, err := b.file.ReadAt(p[:min(int64(len(p)), have-b.read)], b.read)
		b.read += int64(n)
		if err == io.EOF { // somebody has truncated the file
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	if err == nil {
		err = io.EOF
	}
	return 0, err
}

// rangeError tells a registry that has no byte where the download is to go on from other failures.
func (b *blob) rangeError(err error) error {
	var status remoteerrors.ErrUnexpectedStatus
	if errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return b.wrongSize("only", b.have)
	}
	return err
}
