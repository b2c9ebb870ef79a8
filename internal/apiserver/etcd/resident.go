package etcd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// release gives back the memory of the store's file that etcd does not use. It maps the file with MAP_POPULATE, which
// makes all of it resident, 16 MiB at the least; the pages that are needed come back from the page cache as they are
// touched. The mapping is made once: bbolt maps more than the file will ever need.
func release(dataDir string) error {
	path, err := filepath.Abs(filepath.Join(dataDir, "member", "snap", "db"))
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// start-end perms offset dev inode path (proc_pid_maps(5))
		if !strings.HasSuffix(lines.Text(), " "+path) {
			continue
		}
		var start, end uintptr
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x ", &start, &end); err != nil {
			return fmt.Errorf("/proc/self/maps: %q: %w", lines.Text(), err)
		}
		// The mapping is shared and only read: dropping pages loses nothing (madvise(2), MADV_DONTNEED).
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
		return nil
	}
	return errors.Join(lines.Err(), fmt.Errorf("%s is not mapped", path))
}
