package fsck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
)

// Options says what to check.
type Options struct {
	// Root is the store's directory, Config.Root of package store.
	Root string
	// Deep makes each layer's tar again, and compares its digest: every byte of every image is read.
	Deep bool
	// Boot is the kernel's id of this boot, and Now the time, if another than the present ones are meant.
	Boot string
	Now  time.Time
	// Log is where a repair tells what the store says while it is open; nil: nowhere.
	Log *slog.Logger
}

// Result is what a check has found.
type Result struct {
	// Findings, the damaged first; none: the store is whole.
	Findings []fsck.Finding
	// Images and Layers are how many the store has.
	Images, Layers int
	// Pins are the images that each container holds. Known says that they could be read.
	Pins  map[ids.ContainerID][]ids.ImageID
	Known bool

	verdict *verdict
}

// ImageFault says why an image cannot be used; "" when it can.
func (r *Result) ImageFault(id ids.ImageID) string {
	return r.verdict.imageFault(digest.Digest(id))
}

// Check looks at a store that is not open. It changes nothing. A store that is not there is whole. Errors: Unavailable (a process
// has the store open), and those of reading directories; what is damaged is no error, but a finding.
func Check(ctx context.Context, o Options) (*Result, error) {
	if o.Root == "" {
		return nil, errNoRoot
	}
	if o.Boot == "" {
		boot, err := proc.BootID()
		if err != nil {
			return nil, err
		}
		o.Boot = boot
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	f, err := read(ctx, o)
	if err == nil && o.Deep {
		err = f.readDeep(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("check of the image store %s: %w", o.Root, err)
	}
	v := judge(f)
	images := map[digest.Digest]bool{}
	for _, n := range f.names {
		images[n.Target.Digest] = true
	}
	return &Result{Findings: v.findings, Images: len(images), Layers: len(f.layers), Pins: v.pins(), Known: len(f.broken) == 0, verdict: v}, nil
}

// Repair does what the findings' repairs are. What cannot be repaired stays. Check tells afterwards what has become of it.
func Repair(ctx context.Context, o Options, findings []fsck.Finding) error {
	var names, leases []string
	var pins []fsck.Fix
	open := false
	for _, f := range findings {
		switch f.Fix.Action {
		case fsck.Open:
			open = true
		case fsck.DropName:
			names = append(names, f.Fix.Target)
		case fsck.DropLease:
			leases = append(leases, f.Fix.Target)
		case fsck.Pin:
			pins = append(pins, f.Fix)
		case fsck.RemovePath:
			if err := removeWithin(o.Root, f.Fix.Target); err != nil {
				return err
			}
		}
	}
	if !open && len(names)+len(leases)+len(pins) == 0 {
		return nil
	}
	s, err := store.Open(ctx, store.Config{Root: o.Root, Log: o.Log})
	if err != nil {
		return err
	}
	for _, p := range pins { // before anything is collected
		err = errors.Join(err, s.Pin(ctx, ids.ImageID(p.Target), ids.ContainerID(p.Table)))
	}
	return errors.Join(err, s.Drop(ctx, names, leases), s.Close())
}

// removeWithin removes a path below root.
func removeWithin(root, path string) error {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("%s is not in %s: %w", path, root, errdefs.ErrInvalidArgument)
	}
	if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
