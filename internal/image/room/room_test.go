package room

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestRoom(t *testing.T) {
	st := func(total, free, files, ffree uint64) *unix.Statfs_t {
		return &unix.Statfs_t{Bsize: 4096, Blocks: total / 4096, Bavail: free / 4096, Files: files, Ffree: ffree}
	}
	const g = 1 << 30
	for name, c := range map[string]struct {
		st   *unix.Statfs_t
		more int64
		ok   bool
	}{
		"a large disk":             {st(1000*g, 2*g, 1000000, 100000), 0, true},
		"at the limit":             {st(1000*g, g, 1000000, 100000), 0, true},
		"below it":                 {st(1000*g, g-4096, 1000000, 100000), 0, false},
		"a small disk":             {st(2*g, g/9, 1000000, 100000), 0, true},
		"a small disk, below":      {st(2*g, g/11, 1000000, 100000), 0, false},
		"room for so much":         {st(1000*g, 6*g, 1000000, 100000), 5 * g, true},
		"no room for so much":      {st(1000*g, 6*g, 1000000, 100000), 5*g + 1, false},
		"no inodes":                {st(1000*g, 100*g, 1000000, 1000), 0, false},
		"a file system without":    {st(1000*g, 100*g, 0, 0), 0, true},
		"full":                     {st(1000*g, 0, 1000, 1000), 1, false},
		"many inodes, 64 Ki left":  {st(1000*g, 100*g, 1<<40, 64<<10), 0, true},
		"many inodes, less remain": {st(1000*g, 100*g, 1<<40, 64<<10-1), 0, false},
	} {
		err := Room{Dir: "/x"}.judge(c.st, c.more)
		if (err == nil) != c.ok || (err != nil && (!errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "kept for the node"))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
