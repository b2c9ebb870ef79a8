package podstats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
)

// How long all claims may take to be measured, how long to walk over one may take, and how long a file system may take to say how it is.
const (
	claimsPatience = 30 * time.Second
	walkPatience   = 5 * time.Second
	serverPatience = 2 * time.Second
)

// silentMost is how many file systems may owe an answer before no server is asked any more: each holds a thread of this process for as long as it is silent. What is on this node's disks is asked all the same.
const silentMost = 64

// claimed measures what claims stand for: volumes that are mounted for pods, and are nobody's ephemeral storage. A volume that several pods have is measured once.
//
// A volume with a file system of its own, or with a quota by which its file system answers for the directory alone (project quotas), is asked how full it is. A directory among others on a disk is
// walked over, as far as it can be in time, and has the disk's capacity. What may be silent is asked by a goroutine of its own, of which there is one a volume.
type claimed struct {
	log *slog.Logger

	mu   sync.Mutex // guards what follows
	all  map[types.UID]*stats.FsStats
	busy map[types.UID]bool // that are still being asked
	from types.UID          // with whom the next measurement begins: the first that the last one did not reach
}

func newClaimed(log *slog.Logger) *claimed {
	return &claimed{log: log, all: map[types.UID]*stats.FsStats{}, busy: map[types.UID]bool{}}
}

// stats are what was measured of these volumes of a pod, by their names.
func (c *claimed) stats(records map[string]claims.Record) (found []stats.VolumeStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(records)) {
		r := records[name]
		if fs := c.all[r.VolumeUID]; fs != nil {
			one := stats.VolumeStats{Name: name, FsStats: *fs}
			if r.Claim != "" {
				one.PVCRef = &stats.PVCReference{Namespace: r.Namespace, Name: r.Claim}
			}
			found = append(found, one)
		}
	}
	return found
}

// Claims are the volumes that claims of the node's pods stand for, as they were measured last, each claim once. Who asks for it has them measured.
func (c *Collector) Claims() (found []stats.VolumeStats) {
	c.storage.want()
	byClaim := map[string]claims.Record{}
	for _, r := range c.storage.records() {
		byClaim[r.Namespace+"/"+r.Claim] = r
	}
	return c.storage.claimed.stats(byClaim)
}

// measure measures volumes, by the directories in that of all pods where they are mounted. Those that are not mounted, such as paths of the host, are not told of, as by a kubelet.
func (c *claimed) measure(ctx context.Context, podsDir string, records map[string]claims.Record) {
	ctx, cancel := context.WithTimeout(ctx, claimsPatience)
	defer cancel()
	at := map[types.UID]string{}
	for dir, r := range records {
		if r.Mounted && !r.Pending {
			at[r.VolumeUID] = dir
		}
	}
	c.mu.Lock()
	maps.DeleteFunc(c.all, func(uid types.UID, _ *stats.FsStats) bool { return at[uid] == "" })
	order := slices.Sorted(maps.Keys(at))
	first, _ := slices.BinarySearch(order, c.from)
	c.mu.Unlock()
	for _, uid := range slices.Concat(order[first:], order[:first]) {
		if ctx.Err() != nil {
			c.mu.Lock()
			c.from = uid
			c.mu.Unlock()
			c.log.Warn("not all claims were measured in time", "limit", claimsPatience)
			return
		}
		fs, err := c.one(ctx, filepath.Join(podsDir, at[uid]), records[at[uid]])
		if err != nil {
			c.log.Debug("a claim was not measured", "volume", records[at[uid]].Volume, "error", err)
			continue
		}
		c.mu.Lock()
		c.all[uid] = fs
		c.mu.Unlock()
	}
}

// one measures a volume that is mounted at a directory.
func (c *claimed) one(ctx context.Context, dir string, r claims.Record) (*stats.FsStats, error) {
	disk, alone, err := c.disk(ctx, dir, r)
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	block := uint64(disk.Bsize)
	fs := &stats.FsStats{
		Time: now, CapacityBytes: known(disk.Blocks * block), AvailableBytes: known(disk.Bavail * block), Inodes: known(disk.Files), InodesFree: known(disk.Ffree),
	}
	if alone {
		fs.UsedBytes, fs.InodesUsed = known((disk.Blocks-disk.Bfree)*block), known(disk.Files-disk.Ffree)
		return fs, nil
	}
	within, cancel := context.WithTimeout(ctx, walkPatience)
	defer cancel()
	used, err := measure(within, dir)
	switch {
	case err == nil:
		fs.UsedBytes, fs.InodesUsed = known(used.Bytes), known(used.Inodes)
	case within.Err() == nil:
		return nil, err
	}
	return fs, nil
}

// disk asks the file system of a volume. alone: what it says is of the volume alone.
func (c *claimed) disk(ctx context.Context, dir string, r claims.Record) (disk unix.Statfs_t, alone bool, err error) {
	c.mu.Lock()
	busy, silent := c.busy[r.VolumeUID], len(c.busy)
	full := r.Source == claims.NFS && silent >= silentMost
	if !full {
		c.busy[r.VolumeUID] = true
	}
	c.mu.Unlock()
	switch {
	case busy:
		return disk, false, fmt.Errorf("the file system of %s has not answered yet", r.Path)
	case full:
		return disk, false, fmt.Errorf("%s is not asked while %d file systems have not answered", r.Path, silent)
	}
	type answer struct {
		disk, around unix.Statfs_t
		err          error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.err = unix.Statfs(dir, &a.disk)
		if a.err == nil && r.Source == claims.Local {
			_ = unix.Statfs(filepath.Dir(r.Path), &a.around) // one that is not known is another one
		}
		c.mu.Lock()
		delete(c.busy, r.VolumeUID)
		c.mu.Unlock()
		answers <- a
	}()
	within, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	select {
	case a := <-answers:
		return a.disk, a.disk.Type != a.around.Type || a.disk.Blocks != a.around.Blocks, a.err
	case <-within.Done():
		return disk, false, errors.Join(fmt.Errorf("the file system of %s does not answer", r.Path), within.Err())
	}
}
