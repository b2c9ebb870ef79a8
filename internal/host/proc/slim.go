package proc

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Slim gives memory back that only the start of this program has needed: free heap, and the pages of the executable's code and
// constants. A large program touches most of those once, while its packages initialise themselves. What is needed again comes
// back from the page cache, a fault for each 64 KiB; the rest no longer counts as this process's, and the kernel can drop it.
func Slim() error {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for _, m := range readOnlyMappings(string(maps), exe) {
		// The pages are clean and the file's: nothing is lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x of %s: %w", m.start, m.end, exe, errno)
		}
	}
	return nil
}

type mapping struct{ start, end uintptr }

// readOnlyMappings finds a file's private mappings that cannot be written to, in the text of /proc/PID/maps (proc_pid_maps(5)).
func readOnlyMappings(maps, file string) (all []mapping) {
	for line := range strings.Lines(maps) {
		var m mapping
		var perms, offset, device, inode string
		if n, err := fmt.Sscanf(line, "%x-%x %s %s %s %s", &m.start, &m.end, &perms, &offset, &device, &inode); err != nil || n != 6 {
			continue
		}
		_, path, found := strings.Cut(line, "/")
		if found && "/"+strings.TrimSpace(path) == file && len(perms) == 4 && perms[1] == '-' && perms[3] == 'p' {
			all = append(all, m)
		}
	}
	return all
}
