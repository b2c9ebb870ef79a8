package podstats

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/agent/volumes/held"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/wait"
)

// How often files are walked over at most, and how long all of it, or one pod's, may take. A pod that was not reached keeps what was measured last.
const (
	storagePeriod = time.Minute
	passPatience  = 30 * time.Second
	podPatience   = 5 * time.Second
)

// Usage is what files take of a disk, as of At. No inodes: how many there are is not known.
type Usage struct {
	At            time.Time
	Bytes, Inodes uint64
}

// Volume is what a volume takes. Apart: it is on a file system of its own, such as one in memory. What claims stand for is no volume of the pod's: see claimed.
type Volume struct {
	Usage
	Name  string
	Apart bool
}

// Storage is what was measured of a pod: its volumes that the node holds for it, the logs of its containers by their names, and its other files.
type Storage struct {
	At      time.Time
	Volumes []Volume
	Logs    map[string]Usage
	Other   Usage
	// claims are on record, by the names of the volumes.
	claims map[string]claims.Record
}

// Disk is the sum of what is on the node's disk.
func (s *Storage) Disk() Usage {
	all := s.Other
	all.At = s.At
	for _, v := range s.Volumes {
		if !v.Apart {
			all.Bytes, all.Inodes = all.Bytes+v.Bytes, all.Inodes+v.Inodes
		}
	}
	for _, l := range s.Logs {
		all.Bytes, all.Inodes = all.Bytes+l.Bytes, all.Inodes+l.Inodes
	}
	return all
}

// storage measures pods' files.
type storage struct {
	podsDir, logsDir string
	log              *slog.Logger
	wanted           chan struct{}
	claimed          *claimed

	mu  sync.Mutex // guards what follows
	all map[string]*Storage
}

func newStorage(podsDir, logsDir string, log *slog.Logger) *storage {
	return &storage{podsDir: podsDir, logsDir: logsDir, log: log, wanted: make(chan struct{}, 1), claimed: newClaimed(log), all: map[string]*Storage{}}
}

// want asks for a measurement.
func (s *storage) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// of is what was measured last; nil: nothing.
func (s *storage) of(uid string) *Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[uid]
}

// records are those of all pods' claims, by the directories of the volumes in the pods' directory.
func (s *storage) records() map[string]claims.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]claims.Record{}
	for uid, one := range s.all {
		for name, r := range one.claims {
			all[filepath.Join(uid, "volumes", name)] = r
		}
	}
	return all
}

func (s *storage) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wanted:
		}
		s.measure(ctx)
		s.claimed.measure(ctx, s.podsDir, s.records())
		if wait.For(ctx, storagePeriod) != nil {
			return
		}
	}
}

// measure measures all pods that have files.
func (s *storage) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, passPatience)
	defer cancel()
	logs := map[string]string{} // by UID: NAMESPACE_NAME_UID
	entries, err := os.ReadDir(s.logsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the pods' logs are not measured", "error", err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.Count(name, "_") == 2 {
			logs[name[strings.LastIndex(name, "_")+1:]] = filepath.Join(s.logsDir, name)
		}
	}
	pods, err := os.ReadDir(s.podsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the pods' volumes are not measured", "error", err)
		return
	}
	live := map[string]bool{}
	for _, e := range pods {
		uid := e.Name()
		if uid == tree.BinName { // it is no pod's any more
			continue
		}
		live[uid] = true
		within, cancel := context.WithTimeout(ctx, podPatience)
		one, err := measurePod(within, filepath.Join(s.podsDir, uid), logs[uid], true)
		cancel()
		switch {
		case ctx.Err() != nil:
			s.log.Warn("not all pods' volumes and logs were measured in time", "limit", passPatience)
			return
		case err == nil:
			s.mu.Lock()
			s.all[uid] = one
			s.mu.Unlock()
		case !errors.Is(err, fs.ErrNotExist): // a pod that goes meanwhile is none
			s.log.Debug("a pod's volumes and logs were not measured", "podUID", uid, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.all {
		if !live[uid] {
			delete(s.all, uid)
		}
	}
}

// measurePod measures a pod's directory, with the layout of package volumes, and that of its logs. byQuota: what a volume takes that a quota holds to its size is asked of
// the quota, which knows it at once; but what the owner of a file has hidden from it, a walk finds alone.
func measurePod(ctx context.Context, dir, logs string, byQuota bool) (*Storage, error) {
	out := &Storage{At: time.Now(), Logs: map[string]Usage{}, claims: claims.All(dir)}
	volumes := filepath.Join(dir, "volumes")
	own, err := deviceOf(dir)
	if err != nil {
		return nil, err
	}
	if out.Other, err = measure(ctx, dir, filepath.Base(volumes), "subpaths"); err != nil {
		return nil, err
	}
	names, err := os.ReadDir(volumes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range names {
		path := filepath.Join(volumes, e.Name())
		// What a claim stands for is the claim's, and may be on a server that is silent.
		if _, is := out.claims[e.Name()]; is {
			continue
		}
		v := Volume{Name: e.Name()}
		point, err := mount.IsPoint(path)
		if err != nil {
			return nil, err
		}
		device, err := deviceOf(path)
		if err != nil {
			return nil, err
		}
		used, isHeld := held.Used(dir, e.Name(), path)
		v.Apart = point || device != own && !isHeld // a subvolume has a number of its own, and is on the disk
		if isHeld && byQuota {
			v.Usage = Usage{At: time.Now(), Bytes: used.Bytes, Inodes: used.Inodes}
		} else if v.Usage, err = measure(ctx, path); err != nil {
			return nil, err
		}
		out.Volumes = append(out.Volumes, v)
	}
	if logs == "" {
		return out, nil
	}
	names, err = os.ReadDir(logs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range names {
		if e.IsDir() {
			if out.Logs[e.Name()], err = measure(ctx, filepath.Join(logs, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func deviceOf(path string) (uint64, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Dev, nil
}

// maxLinked bounds how many files with several names are remembered to be counted once; more are counted by name.
const maxLinked = 1 << 16

// measure walks over a directory, at any depth, but for what has these names in it. A container may change it meanwhile, and may make links: the walk never leaves
// the directory, nor its file system. A file with several names counts once.
func measure(ctx context.Context, dir string, except ...string) (Usage, error) {
	m := measured{ctx: ctx, except: except, Usage: Usage{At: time.Now()}, seen: map[uint64]bool{}}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return m.Usage, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return m.Usage, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	m.Visit("", 0, &st)
	err = tree.Walk(fd, &m)
	if errors.Is(err, tree.ErrUnfinished) { // what was counted is the least that there is
		err = nil
	}
	return m.Usage, err
}

type measured struct {
	Usage
	ctx    context.Context
	except []string // names in the directory
	seen   map[uint64]bool
}

func (m *measured) Pause() error { return m.ctx.Err() }

func (m *measured) Visit(name string, depth int, st *unix.Stat_t) bool {
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case depth == 1 && slices.Contains(m.except, name):
		return false
	case st.Nlink > 1 && !dir:
		if m.seen[st.Ino] {
			return false
		}
		if len(m.seen) < maxLinked {
			m.seen[st.Ino] = true
		}
	}
	m.Bytes += uint64(st.Blocks) * 512
	m.Inodes++
	return dir
}
