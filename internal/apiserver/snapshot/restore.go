package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// RestoreConfig says what to restore, and where.
type RestoreConfig struct {
	File string
	// DataDir is the server's. It is there, and no server runs on it; the caller holds the node's lock.
	DataDir string
	// Force moves data that is there aside; without it data is an error.
	Force bool
	Log   *slog.Logger
	// Progress is as in SaveConfig.
	Progress func(step string, done, total int64)
}

// Restored says what was restored.
type Restored struct {
	Manifest Manifest `json:"manifest"`
	// Aside is where the data is that was there before; empty: there was none.
	Aside string `json:"aside,omitempty"`
}

// In the data directory there are, while a snapshot is restored:
//
//	restore-new-...   what is being made: worth nothing
//	restore-ready     etcd/ and pki/, whole and on the disk: from here on the restoration is finished, by Finish at the next start if need
//	                  be; below it old/, what was there before
//	before-restore-T  what was there before
const (
	newPrefix   = "restore-new-"
	readyName   = "restore-ready"
	oldName     = "old"
	asidePrefix = "before-restore-"
)

// parts are the folders of DataDir that a snapshot has.
var parts = []string{"etcd", pkiName}

// Restore makes a server's data of a snapshot. An error means that nothing has changed, or, if it says so, that the next start goes on.
func Restore(ctx context.Context, cfg RestoreConfig) (r Restored, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := Finish(cfg.DataDir); err != nil {
		return r, err
	}
	unlock, err := lockOld(cfg.DataDir)
	if err != nil {
		return r, err
	}
	defer unlock()
	if !cfg.Force {
		if err := mustBeEmpty(cfg.DataDir); err != nil {
			return r, err
		}
	}
	made, err := os.MkdirTemp(cfg.DataDir, newPrefix)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(made))
		}
	}()
	if r.Manifest, err = unpack(ctx, cfg, made); err != nil {
		return r, fmt.Errorf("the snapshot %s cannot be used: %w", cfg.File, err)
	}
	if err := build(cfg, made); err != nil {
		return r, fmt.Errorf("the snapshot %s cannot be used: %w", cfg.File, err)
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if err := os.Rename(made, filepath.Join(cfg.DataDir, readyName)); err != nil {
		return r, err
	}
	if r.Aside, err = Finish(cfg.DataDir); err != nil {
		return r, fmt.Errorf("%w; the next start of the node goes on from here", err)
	}
	return r, nil
}

// Finish ends what a restoration has begun that was cut off: what was made whole takes its place, and what was not is removed. A server calls
// it before it opens its data. aside is where the data is that was there before, if there was any.
func Finish(dataDir string) (aside string, err error) {
	left, err := filepath.Glob(filepath.Join(dataDir, newPrefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return "", err
	}
	ready := filepath.Join(dataDir, readyName)
	if _, err := os.Lstat(ready); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err := atomicfile.SyncDir(dataDir); err != nil { // the name of ready comes first
		return "", err
	}
	old := filepath.Join(ready, oldName)
	if err := os.Mkdir(old, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for _, part := range parts {
		from, to := filepath.Join(ready, part), filepath.Join(dataDir, part)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue // it is in its place
		}
		if err := os.Rename(to, filepath.Join(old, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := os.Rename(from, to); err != nil {
			return "", err
		}
	}
	if holdsData(old) {
		aside = filepath.Join(dataDir, asidePrefix+time.Now().UTC().Format("20060102T150405.000Z"))
		if err := os.Rename(old, aside); err != nil {
			return "", err
		}
	}
	return aside, errors.Join(os.RemoveAll(ready), atomicfile.SyncDir(dataDir))
}

// lockOld makes sure that no etcd runs on the data that is there.
func lockOld(dataDir string) (unlock func(), err error) {
	dir := filepath.Join(dataDir, parts[0])
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	return etcd.Lock(dir)
}

func mustBeEmpty(dataDir string) error {
	if !holdsData(dataDir) {
		return nil
	}
	return fmt.Errorf("%s has an API server's data already: with --force it is moved aside", dataDir)
}

// holdsData says whether a folder has objects or keys; etcd's lock is nothing.
func holdsData(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, parts[0], "member"))
	keys, _ := os.ReadDir(filepath.Join(dir, pkiName))
	return err == nil || len(keys) > 0
}

// unpack writes the files of a snapshot to a folder.
func unpack(ctx context.Context, cfg RestoreConfig, to string) (m Manifest, err error) {
	in, err := os.Open(cfg.File)
	if err != nil {
		return m, err
	}
	defer in.Close()
	m, err = read(in, func(name string, size int64, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == databaseName {
			if err := roomFor(to, size); err != nil {
				return err
			}
			content = io.TeeReader(content, progress(cfg.Progress, "restoring", size))
		}
		path := filepath.Join(to, filepath.FromSlash(name)) // check has seen to it that it is below
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	})
	if err != nil {
		return m, err
	}
	return m, checkVersion(m.Etcd)
}

// roomFor says whether a database can be written twice, with etcd's log.
func roomFor(dir string, size int64) error {
	const log = 160 << 20
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if free := int64(min(st.Bavail, 1<<40)) * st.Bsize; free < 2*size+log { // bounded before
		return fmt.Errorf("it takes %d MB to restore it, and the file system of %s has %d MB left", (2*size+log)/1e6, filepath.Dir(dir), free/1e6)
	}
	return nil
}

// checkVersion refuses the storage of an etcd that is newer than ours.
func checkVersion(v string) error {
	theirs, ours := minor(v), minor(version.Version)
	if theirs[0] > ours[0] || theirs[0] == ours[0] && theirs[1] > ours[1] {
		return fmt.Errorf("it is of etcd %s, this version has %s: use a newer monopod", v, version.Version)
	}
	return nil
}

func minor(v string) (n [2]int) {
	for i, s := range strings.SplitN(v, ".", 3) {
		if i < len(n) {
			n[i], _ = strconv.Atoi(s) // an older etcd has told no version
		}
	}
	return n
}

// build makes etcd's data of its snapshot, and has all of it on the disk.
func build(cfg RestoreConfig, dir string) error {
	database := filepath.Join(dir, databaseName)
	if err := etcd.Restore(database, filepath.Join(dir, parts[0]), cfg.Log); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(database), os.MkdirAll(filepath.Join(dir, pkiName), 0o700)); err != nil {
		return err
	}
	return syncAll(dir)
}

// syncAll has the file system that dir is on write everything.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
