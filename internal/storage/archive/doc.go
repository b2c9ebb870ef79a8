// Package archive is the form in which a volume leaves its node, and comes to another one: a tar that any tar reads (PAX, holes as GNU tar has them).
//
//	monopod-volume.json   Head: whose volume it was, and what its claim asked for
//	data/...              what is in it, with numeric owners, modes, times, extended attributes, holes and further names of files; or
//	device                the content of a block device
//	monopod-end.json      End: without it the archive is cut short
//
// What is read is hostile, whoever wrote it: see package untar, which guards the directory that it is unpacked into.
package archive

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The names in an archive.
const (
	headName   = "monopod-volume.json"
	endName    = "monopod-end.json"
	dataName   = "data"
	deviceName = "device"
)

// The form of the archives that are written, and the newest version that is read.
const (
	format  = "monopod.dev/volume"
	version = 1
)

// maxDocument bounds the documents of an archive, in bytes.
const maxDocument = 64 << 10

// Head is the first document.
type Head struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Claim   Claim  `json:"claim"`
	// Taken is when the volume was as it is in the archive. AtOnce: all of it, at one moment; else its files are of different moments if a pod wrote to them.
	Taken  time.Time `json:"taken"`
	AtOnce bool      `json:"atOnce"`
}

// Claim is what the volume's claim was.
type Claim struct {
	Namespace   string                              `json:"namespace"`
	Name        string                              `json:"name"`
	Class       string                              `json:"storageClassName,omitempty"`
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	// Block: the volume is a block device.
	Block bool              `json:"block,omitempty"`
	Size  resource.Quantity `json:"size"`
}

// End is the last document.
type End struct {
	// Entries is how many there are between the two documents.
	Entries int `json:"entries"`
}

// Result tells what was written or read.
type Result struct {
	Entries int
	// Bytes is how many of files' content, holes left out.
	Bytes int64
	// LeftOut are things that are not in the archive, or that were not taken from it, with the reason. More of them are only counted.
	LeftOut []string
	More    int
}

// maxLeftOut is how many things that are left out are told one by one.
const maxLeftOut = 8

func (r *Result) leaveOut(form string, args ...any) {
	if len(r.LeftOut) == maxLeftOut {
		r.More++
		return
	}
	r.LeftOut = append(r.LeftOut, fmt.Sprintf(form, args...))
}

func (h *Head) check() error {
	switch {
	case h.Format != format:
		return fmt.Errorf("it says that its format is %q, and that of volumes is %s: %w", h.Format, format, errdefs.ErrInvalidArgument)
	case h.Version < 1 || h.Version > version:
		return fmt.Errorf("it is of version %d, this Monopod reads those up to %d: %w", h.Version, version, errdefs.ErrInvalidArgument)
	case h.Claim.Size.Sign() <= 0:
		return fmt.Errorf("it says that the claim's size is %s: %w", h.Claim.Size.String(), errdefs.ErrInvalidArgument)
	}
	return nil
}

func parse(raw []byte, to any) error {
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return nil
}
