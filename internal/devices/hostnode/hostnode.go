// Package hostnode looks at a host's device nodes: what a node is, which other names it has, and which USB device it is a part of. It reads
// the folder of device nodes and sysfs, and changes nothing.
//
// What sysfs does not tell is left empty: a container's sysfs, and one that is not mounted, are no error.
package hostnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/hostdevice"
)

// Host is where is looked; tests give it other roots.
type Host struct {
	Dev string // /dev
	Sys string // /sys
}

// ThisHost is the host that we run on.
func ThisHost() Host { return Host{Dev: "/dev", Sys: "/sys"} }

// maxLinks is what Linux allows in one look-up.
const maxLinks = 40

// Look tells what the node at a path is. Errors: errdefs.ErrNotFound when nothing is there, ErrInvalidArgument when it is no character or
// block device, and those of package os.
func (h Host) Look(path string) (hostdevice.Node, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return hostdevice.Node{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(abs, &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return hostdevice.Node{}, h.absent(abs)
		}
		return hostdevice.Node{}, fmt.Errorf("%s cannot be looked at: %w", abs, err)
	}
	n := hostdevice.Node{Type: cdispec.NodeType(st.Mode), Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	if n.Type != "b" && n.Type != "c" {
		return hostdevice.Node{}, fmt.Errorf("%s is a %s, no character or block device: name a device node, such as /dev/ttyUSB0%s: %w", abs, cdispec.FileType(st.Mode), insteadOf(st.Mode), errdefs.ErrInvalidArgument)
	}
	if n.Path, n.Hops, err = follow(abs); err != nil {
		return hostdevice.Node{}, err
	}
	if n.Real = n.Path; len(n.Hops) > 0 {
		n.Real = n.Hops[len(n.Hops)-1]
	}
	n.Links = h.links(n.Real)
	n.Subsystem, n.USB = h.inSysfs(n)
	return n, nil
}

// absent is the error about a path where nothing is.
func (h Host) absent(path string) error {
	if target, err := os.Readlink(path); err == nil {
		return fmt.Errorf("%s is a link to %s, which does not exist: plug the device in, or load its driver: %w", path, target, errdefs.ErrNotFound)
	}
	return fmt.Errorf("%s does not exist: plug the device in, or load its driver ('dmesg' tells the name that it gets): %w", path, errdefs.ErrNotFound)
}

// insteadOf tells what does for things that are no devices.
func insteadOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR, unix.S_IFREG, unix.S_IFSOCK:
		return "; a pod gets other files by a volume of the kind hostPath"
	}
	return ""
}

// follow returns a path with its folder's links followed, and the paths to which it leads itself.
func follow(path string) (at string, hops []string, err error) {
	for {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", nil, err
		}
		path = filepath.Join(dir, filepath.Base(path))
		if at == "" {
			at = path
		} else {
			hops = append(hops, path)
		}
		target, err := os.Readlink(path)
		if err != nil {
			return at, hops, nil // the node; that there is one was seen
		}
		if len(hops) == maxLinks {
			return "", nil, fmt.Errorf("%s leads over more than %d links", at, maxLinks)
		}
		if path = target; !filepath.IsAbs(path) {
			path = filepath.Join(dir, target)
		}
	}
}

// stable are the folders below the folder of device nodes in which udev makes names that stay, those that are better for following a device first.
var stable = []string{hostdevice.LinkFolder, "serial/by-id", "disk/by-id", "input/by-id", "v4l/by-id", "disk/by-*", "serial/by-*", "input/by-*", "v4l/by-*"}

// links are the stable names of a node.
func (h Host) links(real string) (all []string) {
	dev, err := filepath.EvalSymlinks(h.Dev)
	if err != nil {
		return nil
	}
	for _, folder := range stable {
		found, err := filepath.Glob(filepath.Join(dev, folder, "*"))
		if err != nil {
			continue // a constant's
		}
		for _, link := range found {
			if target, err := filepath.EvalSymlinks(link); err == nil && target == real && target != link && !slices.Contains(all, link) {
				all = append(all, link)
			}
		}
	}
	return all
}

// inSysfs is what sysfs says of a node's number.
func (h Host) inSysfs(n hostdevice.Node) (subsystem string, usb *hostdevice.USB) {
	kind := map[string]string{"c": "char", "b": "block"}[n.Type]
	dir, err := filepath.EvalSymlinks(filepath.Join(h.Sys, "dev", kind, fmt.Sprintf("%d:%d", n.Major, n.Minor)))
	if err != nil {
		return "", nil
	}
	subsystem = subsystemOf(dir)
	root, err := filepath.EvalSymlinks(h.Sys)
	if err != nil {
		return subsystem, nil
	}
	for ; strings.HasPrefix(dir, root+"/"); dir = filepath.Dir(dir) {
		if usb, ok := usbDevice(dir); ok {
			return subsystem, &usb
		}
	}
	return subsystem, nil
}

func subsystemOf(dir string) string {
	target, err := os.Readlink(filepath.Join(dir, "subsystem"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
