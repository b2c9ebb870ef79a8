package unpack

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/room"
)

// maxLayersAtOnce is how many layers are fetched and unpacked at a time, by all pulls together, beside those that wait for a slow registry (turn.go).
const maxLayersAtOnce = 6

// Limits bound what an image may be once it is unpacked, and what all pulls do at a time. They are no protection of the disk, which package room is, but bound
// the time and the work that an image can cause.
type Limits struct {
	// LayerBytes, LayerEntries and LayerMemory are of one layer (untar.Options), ImageBytes of all layers of an image together.
	LayerBytes   int64
	LayerEntries int
	LayerMemory  int64
	ImageBytes   int64
	// Patience is with a download that has a turn and does not move.
	Patience time.Duration
}

// DefaultLimits are those of a node. No user needs them to be settings: no registry known to us takes a layer of more than 200 GiB, and layers of
// model weights, which are the largest, hardly compress.
func DefaultLimits() Limits {
	return Limits{
		LayerBytes: 256 << 30, LayerEntries: 8 << 20, ImageBytes: 1 << 40,
		LayerMemory: 64 << 20, // enough for 400,000 directories with paths of 100 bytes
		Patience:    patience,
	}
}

// imageMeter counts what all layers of an image have together.
type imageMeter struct {
	max  int64
	have atomic.Int64
}

// of counts what goes through r.
func (m *imageMeter) of(r io.Reader) io.Reader { return &metered{r, m} }

type metered struct {
	io.Reader
	image *imageMeter
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.image.have.Add(int64(n)) > m.image.max {
		return n, fmt.Errorf("the layers of the image have more than %s together: %w", room.Size(uint64(m.image.max)), errdefs.ErrResourceExhausted) // positive
	}
	return n, err
}
