package stats

import (
	"iter"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Written tells what containers have written over their images, all of them together: of each the last measurement, and nothing of
// one that has not been measured yet. all yields their ids and the directories of their layers.
//
// beside is another directory. When the layers are on its file system, that one's name is given, by which clients see that the two
// are one (a kubelet compares the mountpoints of ImageFsInfoResponse).
func (c *Collector) Written(all iter.Seq2[string, string], beside string) *cri.FilesystemUsage {
	var bytes, inodes uint64
	for id, dir := range all {
		if usage, ok := c.layers.usage(id, dir); ok {
			bytes += usage.bytes
			inodes += usage.inodes
		}
	}
	mountpoint := c.cfg.LayerDir
	if sameFileSystem(mountpoint, beside) {
		mountpoint = beside
	}
	return &cri.FilesystemUsage{Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: mountpoint},
		UsedBytes: number(bytes), InodesUsed: number(inodes)}
}

// sameFileSystem says that two directories are on one. What cannot be looked at is on none.
func sameFileSystem(a, b string) bool {
	var of, as unix.Stat_t
	return unix.Stat(a, &of) == nil && unix.Stat(b, &as) == nil && of.Dev == as.Dev
}
