// Package download brings the compressed bytes of a layer from a registry into a file, and lets them be read while they come. A file is only ever
// appended to, so whatever ended a download, the next one goes on at its end.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Source is who sends the bytes.
type Source interface {
	// Fetch begins to read a blob. The reader can seek. The host that answers is the registry.Served of the context.
	remotes.Fetcher
	// Pause waits before attempt n+1 of something that failed, n from 1.
	Pause(ctx context.Context, n int) error
}

// Layer is one layer while it comes in: it is read behind the writer. One goroutine calls Fill, and one reads.
type Layer struct {
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

// ErrStale says that a download went on with bytes which do not belong to the layer: begin anew, with an empty file.
var ErrStale = errors.New("what an earlier download left does not belong to the layer")

// New makes a download into a file that nobody else writes to; what the file has already need not be fetched. report is told how many bytes there
// are, by Fill. The file is closed by Close, and where New fails.
func New(file *os.File, desc ocispec.Descriptor, free room.Room, report func(done int64)) (*Layer, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	have := info.Size()
	if have > desc.Size {
		have = 0
		if err := file.Truncate(0); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	l := &Layer{desc: desc, file: file, room: free, have: have, resumed: have > 0, report: report}
	l.grown.L = &l.mu
	return l, nil
}

// Have is how many bytes there are, before Fill.
func (l *Layer) Have() int64 { return l.have }

// Close closes the file.
func (l *Layer) Close() error { return l.file.Close() }

// Fill fetches what is missing, and goes on after every failure that may pass. It always ends the download: a reader gets its error, or the end.
func (l *Layer) Fill(ctx context.Context, from Source) error {
	err := l.fetchAll(ctx, from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.err = true, err
	l.grown.Broadcast()
	return err
}

// minProgress is how much an attempt has to bring for the ones after it to be counted anew.
const minProgress = 64 << 10

func (l *Layer) fetchAll(ctx context.Context, from Source) error {
	l.report(l.have)
	for try := 1; l.have < l.desc.Size; try++ {
		before := l.have
		err := l.fetch(ctx, from)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if l.have-before >= minProgress {
			try = 1
		}
		if !mayPass(err) {
			return err
		}
		if try > registry.MaxRetries && l.served.Distrust(err) {
			try = 1 // of another host
		}
		if try > registry.MaxRetries {
			return fmt.Errorf("the download broke at byte %d of %d, and %d more attempts did not help: %w", l.have, l.desc.Size, registry.MaxRetries, err)
		}
		if err := from.Pause(ctx, try); err != nil {
			return err
		}
	}
	return failpoint.Hit("image/download/complete")
}

// mayPass says whether a download that failed is worth another attempt.
func mayPass(err error) bool {
	if errors.Is(err, ErrWrite) || errors.Is(err, ErrStale) {
		return false // no attempt will help
	}
	return registry.MayPass(err)
}

// ErrWrite says that the disk did not take what came.
var ErrWrite = errors.New("storing the download")

// bufferSize is what is taken of an answer at a time.
const bufferSize = 128 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// fetch makes one attempt.
func (l *Layer) fetch(ctx context.Context, from Source) error {
	desc := l.desc
	desc.URLs = nil // a manifest does not send this machine to other hosts
	body, err := from.Fetch(l.served.In(ctx), desc)
	if err != nil {
		return err
	}
	defer body.Close()
	if l.have > 0 {
		l.resumed = true
		seeker, ok := body.(io.Seeker)
		if !ok {
			return fmt.Errorf("the registry client cannot go on with a download: %w", errdefs.ErrInternal)
		}
		if _, err := seeker.Seek(l.have, io.SeekStart); err != nil {
			return err
		}
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for l.have < l.desc.Size {
		n, err := body.Read(buf[:min(bufferSize, l.desc.Size-l.have)])
		if n > 0 {
			if err := l.append(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF && l.have < l.desc.Size {
			return l.wrongSize("only", l.have)
		}
		if err != nil && err != io.EOF {
			return l.rangeError(err)
		}
	}
	// One byte more: the end of the answer, after which its connection can be used again.
	switch n, err := body.Read(buf[:1]); {
	case n > 0, errdefs.IsFailedPrecondition(err):
		return l.wrongSize("more than", l.desc.Size)
	}
	return nil
}

func (l *Layer) wrongSize(than string, n int64) error {
	err := fmt.Errorf("the registry has %s %d bytes of the layer, its manifest says %d: %w", than, n, l.desc.Size, errdefs.ErrFailedPrecondition)
	if l.BeginAnew(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// BeginAnew says whether a download whose bytes are wrong is worth another one, from the first byte: when it went on where
// an earlier one ended, or when the host is not the last one that can be asked.
func (l *Layer) BeginAnew(why error) bool {
	other := l.served.Distrust(why)
	return l.resumed || other
}

func (l *Layer) append(p []byte) error {
	if err := failpoint.Hit("image/download/write"); err != nil {
		return err
	}
	if l.unasked += len(p); l.unasked >= room.AskEvery {
		l.unasked = 0
		if err := l.room.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	if _, err := l.file.WriteAt(p, l.have); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	l.mu.Lock()
	l.have += int64(len(p))
	l.grown.Broadcast()
	l.mu.Unlock()
	l.report(l.have)
	return nil
}

// Read implements io.Reader: it waits for bytes that are on their way.
func (l *Layer) Read(p []byte) (int, error) {
	l.mu.Lock()
	for l.read == l.have && !l.ended {
		l.grown.Wait()
	}
	have, err := l.have, l.err
	l.mu.Unlock()
	if l.read < have {
		n, err := l.file.ReadAt(p[:min(int64(len(p)), have-l.read)], l.read)
		l.read += int64(n)
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
func (l *Layer) rangeError(err error) error {
	var status remoteerrors.ErrUnexpectedStatus
	if errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return l.wrongSize("only", l.have)
	}
	return err
}
