package image

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/room"
)

const (
	// maxLayersAtOnce is how many layers are fetched and unpacked at a time, by all pulls together, beside those that wait for a slow registry (turn.go).
	maxLayersAtOnce = 6
	// maxDocument is the largest manifest, index or configuration: they are read into memory. Registries take 4 MiB at most.
	maxDocument = 8 << 20
	// maxLayers is how many lower directories the kernel's overlay takes.
	maxLayers = 500
	// maxIndexes is how many indexes may lie within one another.
	maxIndexes = 4
)

// Limits of what an image may be once it is unpacked. They are no protection of the disk, which room is, but bound the time and the work
// that an image can cause. No user needs them to be settings: no registry known to us takes a layer of more than 200 GiB, and layers of
// model weights, which are the largest, hardly compress.
const (
	maxLayerBytes   = 256 << 30
	maxLayerEntries = 8 << 20
	maxImageBytes   = 1 << 40
	// maxLayerMemory is enough for 400,000 directories with paths of 100 bytes.
	maxLayerMemory = 64 << 20
)

// limits bounds what all pulls together do at a time, and what each image may be.
type limits struct {
	layers       *semaphore.Weighted
	patience     time.Duration       // with a download that has a turn and does not move
	windows      *semaphore.Weighted // bytes of zstd's windows
	layerBytes   int64
	layerEntries int
	layerMemory  int64
	imageBytes   int64
}

func newLimits() limits {
	return limits{layers: semaphore.NewWeighted(maxLayersAtOnce), patience: patience, windows: decompress.NewWindows(), layerBytes: maxLayerBytes, layerEntries: maxLayerEntries,
		layerMemory: maxLayerMemory, imageBytes: maxImageBytes}
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
		return n, fmt.Errorf("the layers of the image have more than %s together: %w", room.Size(uint64(m.image.max)), errdefs.ErrResourceExhausted) //nolint:gosec // positive
	}
	return n, err
}
