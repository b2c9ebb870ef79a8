package hostnode

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/devices/hostdevice"
)

// rig is a host with a folder of device nodes and a sysfs of its own.
type rig struct {
	Host
	t *testing.T
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Host{Dev: filepath.Join(dir, "dev"), Sys: filepath.Join(dir, "sys")}, t}
	r.mkdir(r.Dev)
	r.mkdir(r.Sys)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) mkdir(dir string) { r.t.Helper(); r.must(os.MkdirAll(dir, 0o755)) }

func (r *rig) write(path, text string) {
	r.t.Helper()
	r.mkdir(filepath.Dir(path))
	r.must(os.WriteFile(path, []byte(text+"\n"), 0o600))
}

func (r *rig) link(target, path string) {
	r.t.Helper()
	r.mkdir(filepath.Dir(path))
	r.must(os.Symlink(target, path))
}

// node makes a device node, which is really a copy of /dev/null (character) or nothing (block).
func (r *rig) node(name string) {
	r.t.Helper()
	path := filepath.Join(r.Dev, name)
	r.mkdir(filepath.Dir(path))
	mode, number := uint32(unix.S_IFCHR), unix.Mkdev(1, 3)
	if strings.HasPrefix(name, "sd") {
		mode, number = unix.S_IFBLK, unix.Mkdev(259, 4095)
	}
	r.must(unix.Mknod(path, mode|0o600, int(number)))
}

const pci = "devices/pci0000:00/0000:00:14.0/usb1"

// usb plugs a device into a port.
func (r *rig) usb(port string, attributes map[string]string) (dir string) {
	r.t.Helper()
	dir = filepath.Join(r.Sys, pci, port)
	for name, text := range attributes {
		r.write(filepath.Join(dir, name), text)
	}
	r.link("../../../../../bus/usb", filepath.Join(dir, "subsystem"))
	r.link(dir, filepath.Join(r.Sys, "bus/usb/devices", filepath.Base(port)))
	return dir
}

// function makes a node below a device in sysfs, with the number 1:3 listed for it.
func (r *rig) function(dir, subsystem, devname string) {
	r.t.Helper()
	r.write(filepath.Join(dir, "uevent"), "MAJOR=1\nMINOR=3\nDEVNAME="+devname)
	if subsystem != "" {
		r.link("/sys/class/"+subsystem, filepath.Join(dir, "subsystem"))
	}
	r.node(devname)
}

func ftdi(serial string) map[string]string {
	return map[string]string{"idVendor": "0403", "idProduct": "6001", "serial": serial, "product": "FT232R USB \x1bUART", "bDeviceClass": "00"}
}

func TestLook(t *testing.T) {
	r := newRig(t)
	dir := r.usb("1-1", ftdi("A50285BI"))
	r.function(filepath.Join(dir, "1-1:1.0/ttyUSB0/tty/ttyUSB0"), "tty", "ttyUSB0")
	r.link("../../"+pci+"/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0", filepath.Join(r.Sys, "dev/char/1:3"))
	r.link("../../ttyUSB0", filepath.Join(r.Dev, "serial/by-path/pci-1"))
	r.link("../../ttyUSB0", filepath.Join(r.Dev, "serial/by-id/usb-FTDI"))
	r.link("../../ttyUSB9", filepath.Join(r.Dev, "serial/by-id/usb-other"))
	r.link("serial/by-id/usb-FTDI", filepath.Join(r.Dev, "modem"))
	r.link("dev", filepath.Join(filepath.Dir(r.Dev), "alias"))
	r.node("sda")
	dev := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(r.Dev, n))
		}
		return paths
	}
	for name, want := range map[string]struct{ path, hops []string }{
		"dev/ttyUSB0":               {dev("ttyUSB0"), nil},
		"alias/ttyUSB0":             {dev("ttyUSB0"), nil},
		"dev/../dev/ttyUSB0":        {dev("ttyUSB0"), nil},
		"dev/serial/by-id/usb-FTDI": {dev("serial/by-id/usb-FTDI"), dev("ttyUSB0")},
		"alias/modem":               {dev("modem"), dev("serial/by-id/usb-FTDI", "ttyUSB0")},
	} {
		n, err := r.Look(filepath.Dir(r.Dev) + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if n.Path != want.path[0] || !slices.Equal(n.Hops, want.hops) || n.Real != dev("ttyUSB0")[0] || n.Type != "c" || n.Major != 1 || n.Minor != 3 || n.Subsystem != "tty" ||
			!slices.Equal(n.Links, dev("serial/by-id/usb-FTDI", "serial/by-path/pci-1")) || n.USB == nil || *n.USB != (hostdevice.USB{Vendor: "0403", Product: "6001", Serial: "A50285BI"}) {
			t.Errorf("%s: %+v, %v", name, n, n.USB)
		}
	}
	if n, err := r.Look(filepath.Join(r.Dev, "sda")); err != nil || n.Type != "b" || n.USB != nil || n.Subsystem != "" || n.Links != nil || n.Real != n.Path {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestLookRefuses(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.Dev, "file"), "")
	r.link("gone", filepath.Join(r.Dev, "dangling"))
	r.link("loop", filepath.Join(r.Dev, "loop"))
	r.must(unix.Mkfifo(filepath.Join(r.Dev, "pipe"), 0o600))
	short, err := os.MkdirTemp("", "x")
	r.must(err)
	t.Cleanup(func() { os.RemoveAll(short) })
	l, err := net.Listen("unix", short+"/s")
	r.must(err)
	t.Cleanup(func() { l.Close() })
	for path, want := range map[string]string{
		r.Dev:               "is a directory, no character or block device",
		r.Dev + "/file":     "is a regular file, no character or block device: name a device node, such as /dev/ttyUSB0; a pod gets other files by a volume of the kind hostPath",
		r.Dev + "/pipe":     "is a pipe, no character or block device",
		short + "/s":        "is a socket, no character or block device",
		r.Dev + "/none":     "does not exist: plug the device in",
		r.Dev + "/dangling": "is a link to gone, which does not exist",
		r.Dev + "/loop":     "cannot be looked at: too many levels",
	} {
		_, err := r.Look(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestFind(t *testing.T) {
	r := newRig(t)
	wanted := hostdevice.USB{Vendor: "0403", Product: "6001"}
	find := func(u hostdevice.USB) string {
		t.Helper()
		path, err := r.Find(u)
		if err != nil {
			if !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%v is of no class", err)
			}
			return strings.ReplaceAll(err.Error(), r.Dev, "DEV")
		}
		return strings.ReplaceAll(path, r.Dev, "DEV")
	}
	want := func(got, part string) {
		t.Helper()
		if !strings.Contains(got, part) {
			t.Errorf("got %q, want %q", got, part)
		}
	}
	want(find(wanted), "no USB device 0403:6001 is plugged in: the host shows none at all")

	// A hub, with an adapter and a key in it; the hub's folder has theirs in it.
	hub := r.usb("1-1", map[string]string{"idVendor": "05e3", "idProduct": "0608", "bDeviceClass": "09"})
	r.function(hub, "", "bus/usb/001/002")
	one := r.usb("1-1/1-1.1", ftdi("A50285BI"))
	r.mkdir(filepath.Join(one, "1-1.1:1.0"))
	r.link(filepath.Join(one, "1-1.1:1.0"), filepath.Join(r.Sys, "bus/usb/devices/1-1.1:1.0"))
	want(find(wanted), "has no device node below DEV")
	r.function(one, "", "bus/usb/001/004")
	want(find(wanted), "DEV/bus/usb/001/004")
	r.function(filepath.Join(one, "1-1.1:1.0/ttyUSB0/tty/ttyUSB0"), "tty", "ttyUSB0")
	if got := find(wanted); got != "DEV/ttyUSB0" {
		t.Errorf("got %q", got)
	}
	want(find(hostdevice.USB{Vendor: "1a86", Product: "7523"}), "no USB device 1a86:7523 is plugged in: there are 0403:6001:A50285BI (FT232R USB UART, port 1-1.1)")

	two := r.usb("1-2", ftdi("B0"))
	r.function(filepath.Join(two, "1-2:1.0/hidraw/hidraw3"), "hidraw", "hidraw3")
	r.function(filepath.Join(two, "1-2:1.0/input/input4/event4"), "input", "input/event4")
	want(find(wanted), "2 USB devices are 0403:6001: 0403:6001:A50285BI (FT232R USB UART, port 1-1.1), 0403:6001:B0 (FT232R USB UART, port 1-2); say which by its serial number")
	wanted.Serial = "B0"
	if got := find(wanted); got != "DEV/hidraw3" {
		t.Errorf("got %q", got)
	}
	for i := range 2 {
		r.function(filepath.Join(two, fmt.Sprintf("1-2:1.1/video4linux/video%d", i)), "video4linux", fmt.Sprintf("video%d", i))
	}
	want(find(wanted), "has several nodes: DEV/hidraw3, DEV/video0, DEV/video1; name the one that is meant: monopod device add DEV/hidraw3 --usb 0403:6001:B0")
	wanted.Serial = "C"
	want(find(wanted), "no USB device 0403:6001:C is plugged in")
}

// This host's own sysfs is read, whatever is in it.
func TestThisHost(t *testing.T) {
	n, err := ThisHost().Look("/dev/null")
	if err != nil || n.Path != "/dev/null" || n.Major != 1 || n.Minor != 3 || n.USB != nil {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := ThisHost().Attached(); err != nil {
		t.Error(err)
	}
}
