package fsck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/fsck"
	layerrecipe "monopod.dev/monopod/internal/image/recipe"
	"monopod.dev/monopod/internal/image/store"
)

// maxDocument is the largest manifest or configuration that a store takes.
const maxDocument = 8 << 20

func (f *facts) readDirectories(ctx context.Context, root string) error {
	return errors.Join(f.readBlobs(ctx, root), f.readIngests(root), f.readLayerDirs(ctx, root), f.readDownloads(root))
}

func (f *facts) readBlobs(ctx context.Context, root string) error {
	dir := filepath.Join(root, "content", "blobs")
	algorithms, err := list(dir)
	if err != nil {
		return err
	}
	for _, a := range algorithms {
		files, err := list(filepath.Join(dir, a.Name()))
		if err != nil {
			return err
		}
		for _, e := range files {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			path := filepath.Join(dir, a.Name(), e.Name())
			name := digest.Digest(a.Name() + ":" + e.Name())
			if name.Validate() != nil || !e.Type().IsRegular() {
				f.strays = append(f.strays, path)
				continue
			}
			if f.files[name], err = readBlob(path, name.Algorithm()); err != nil {
				return err
			}
		}
	}
	return nil
}

func readBlob(path string, by digest.Algorithm) (b blobFile, err error) {
	file, err := os.Open(path)
	if err != nil {
		return b, err
	}
	defer file.Close() // it was only read
	hash := by.Digester()
	head, err := io.ReadAll(io.TeeReader(io.LimitReader(file, maxDocument+1), hash.Hash()))
	if err != nil {
		return b, err
	}
	rest, err := io.Copy(hash.Hash(), file)
	b.size, b.actual = int64(len(head))+rest, hash.Digest()
	if len(head) <= maxDocument {
		b.raw = head
	}
	return b, err
}

// readIngests reads content/ingest, where a directory has a file that names what is in it.
func (f *facts) readIngests(root string) error {
	dir := filepath.Join(root, "content", "ingest")
	entries, err := list(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		ref, rerr := os.ReadFile(filepath.Join(path, "ref"))
		if rerr != nil || len(ref) == 0 {
			f.strays = append(f.strays, path)
			continue
		}
		f.transfers[string(ref)] = path
	}
	return err
}

func (f *facts) readLayerDirs(ctx context.Context, root string) error {
	dir := filepath.Join(root, "overlay", "snapshots")
	entries, err := list(dir)
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		path := filepath.Join(dir, e.Name())
		if _, err := strconv.ParseUint(e.Name(), 10, 64); err != nil || !e.IsDir() {
			f.strays = append(f.strays, path)
			continue
		}
		files, record := store.SnapshotPaths(root, e.Name())
		d := &layerDir{path: path, recipe: readRecipe(record)}
		if info, err := os.Lstat(files); err == nil && info.IsDir() {
			d.files = true
		}
		f.dirs[e.Name()] = d
	}
	probe := filepath.Join(root, "overlay", "probe") // of a test for overlays that was killed
	if _, err := os.Lstat(probe); err == nil {
		f.strays = append(f.strays, probe)
	}
	return err
}

func readRecipe(path string) recipe {
	r := recipe{path: path}
	rec, err := layerrecipe.Open(path)
	switch {
	case errdefs.IsNotFound(err):
		return r // of a layer that was unpacked by a version without recipes
	case errdefs.IsFailedPrecondition(err):
		// A whole recipe of a tar that cannot be made again.
	case err != nil:
		r.fault = err
	default:
		r.digest = rec.Digest
	}
	r.there = true
	return r
}

func (f *facts) readDownloads(root string) error {
	dir := filepath.Join(root, "downloads")
	boots, err := list(dir)
	for _, boot := range boots {
		path := filepath.Join(dir, boot.Name())
		files, err := list(path)
		if err != nil { // no directory
			f.strays = append(f.strays, path)
			continue
		}
		if boot.Name() != f.boot && len(files) == 0 {
			f.strays = append(f.strays, path)
		}
		for _, e := range files {
			info, err := e.Info()
			if err != nil {
				return err
			}
			f.downloads = append(f.downloads, download{path: filepath.Join(path, e.Name()), boot: boot.Name(), since: info.ModTime()})
		}
	}
	return err
}

// readDeep makes the tar of each layer again and compares its digest, and counts the files. That finds files of layers
// whose content was changed, that were removed or added.
func (f *facts) readDeep(ctx context.Context, o Options) error {
	inodes := map[string]int64{}
	for _, s := range f.snapshots {
		inodes[s.id] = s.inodes
	}
	ids := make([]string, 0, len(f.dirs))
	for id := range f.dirs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		d := f.dirs[id]
		if want, known := inodes[id]; !known || want == 0 || !d.files {
			continue
		}
		if err := d.compare(ctx, o.Root, id, inodes[id]); err != nil {
			return fmt.Errorf("layer directory %s: %w", d.path, err)
		}
	}
	return nil
}

func (d *layerDir) compare(ctx context.Context, root, id string, inodes int64) error {
	files, record := store.SnapshotPaths(root, id)
	if d.recipe.digest != "" {
		rec, err := layerrecipe.Open(record)
		if err != nil {
			return err
		}
		err = rec.WriteTar(ctx, io.Discard, files)
		if errdefs.IsDataLoss(err) {
			d.fault = fsck.Said(err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	has, err := countInodes(ctx, files)
	if err == nil && has != inodes {
		d.fault = fmt.Sprintf("it has %d files and directories, when it was unpacked it had %d", has, inodes)
	}
	return err
}

// countInodes counts as the snapshotter does: hard links once.
func countInodes(ctx context.Context, dir string) (int64, error) {
	seen := map[uint64]struct{}{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			seen[info.Sys().(*syscall.Stat_t).Ino] = struct{}{}
		}
		return err
	})
	return int64(len(seen)), err
}
