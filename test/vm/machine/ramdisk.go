package machine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"monopod.dev/monopod/test/vm/guest"
)

// writeRamdisk writes an initial ramdisk: init and the kernel modules.
func writeRamdisk(path, init string, moduleFiles []string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriter(f)
	a := &cpio{w: w}
	for _, dir := range []string{"dev", "proc", "sys", "newroot", filepath.Dir(guest.ModuleList)[1:]} {
		a.add(dir, 0o040755, nil)
	}
	a.addFile("init", init, 0o100755)
	var list strings.Builder
	for _, m := range moduleFiles {
		name := filepath.Join(filepath.Dir(guest.ModuleList), filepath.Base(m))
		a.addFile(name[1:], m, 0o100644)
		fmt.Fprintln(&list, name)
	}
	a.add(guest.ModuleList[1:], 0o100644, []byte(list.String()))
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		return fmt.Errorf("write the initial ramdisk: %w", a.err)
	}
	return w.Flush()
}

// cpio writes an archive in the format "newc" (Linux: Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	w   io.Writer
	ino int
	err error
}

func (a *cpio) addFile(name, path string, mode uint32) {
	data, err := os.ReadFile(path)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, mode, data)
}

func (a *cpio) add(name string, mode uint32, data []byte) {
	a.ino++
	// magic, inode, mode, uid, gid, links, mtime, size, device and its node's numbers, name's size with the NUL, checksum
	a.printf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.printf("%s\x00%s", name, padding(110+len(name)+1))
	a.printf("%s%s", data, padding(len(data)))
}

func (a *cpio) printf(format string, args ...any) {
	if a.err == nil {
		_, a.err = fmt.Fprintf(a.w, format, args...)
	}
}

// padding fills up to a multiple of four.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
