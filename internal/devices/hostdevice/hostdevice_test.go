package hostdevice

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

var ftdi = USB{Vendor: "0403", Product: "6001", Serial: "A50285BI"}

const (
	byID   = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"
	byPath = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0"
)

// serial is an adapter, found by a path.
func serial(path string, links ...string) Node {
	n := Node{Path: path, Real: "/dev/ttyUSB0", Type: "c", Major: 188, Subsystem: "tty", Links: links, USB: &USB{ftdi.Vendor, ftdi.Product, ftdi.Serial}}
	if path != n.Real {
		n.Hops = []string{n.Real}
	}
	return n
}

func noSerial(n Node) Node {
	n.USB = &USB{Vendor: "1a86", Product: "7523"}
	return n
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		req  Request
		node Node
		// CDI name, host path > container path, permissions, follows
		want  string
		notes []string // a part of each
	}{
		"a plain node": {Request{ByPath: true}, Node{Path: "/dev/watchdog1", Real: "/dev/watchdog1", Type: "c", Subsystem: "watchdog"},
			"device.monopod.dev/watchdog=watchdog1 /dev/watchdog1>/dev/watchdog1 rw number", nil},
		"no sysfs": {Request{ByPath: true}, Node{Path: "/dev/ttyACM0", Real: "/dev/ttyACM0", Type: "c"},
			"device.monopod.dev/serial=ttyACM0 /dev/ttyACM0>/dev/ttyACM0 rw number", nil},
		"nothing known": {Request{ByPath: true}, Node{Path: "/dev/odd", Real: "/dev/odd", Type: "c"}, "device.monopod.dev/host=odd /dev/odd>/dev/odd rw number", nil},
		"a screen":      {Request{ByPath: true}, Node{Path: "/dev/tty1", Real: "/dev/tty1", Type: "c", Subsystem: "tty"}, "device.monopod.dev/host=tty1 /dev/tty1>/dev/tty1 rw number", nil},
		"a disk": {Request{ByPath: true}, Node{Path: "/dev/sdb", Real: "/dev/sdb", Type: "b", Links: []string{"/dev/disk/by-id/ata-X"}},
			"device.monopod.dev/block=sdb /dev/sdb>/dev/sdb rw number", []string{"to follow that: monopod device add /dev/disk/by-id/ata-X --name sdb --class block --container-path /dev/sdb --replace", "it must not be mounted"}},
		"a disk to read": {Request{ByPath: true, Permissions: "r"}, Node{Path: "/dev/sdb", Real: "/dev/sdb", Type: "b"}, "device.monopod.dev/block=sdb /dev/sdb>/dev/sdb r number", nil},
		"all is said": {Request{ByPath: true, Name: "modem", Class: "Modem-x", Permissions: "wm", ContainerPath: "/dev/modem"}, serial(byID, byID),
			"device.monopod.dev/Modem-x=modem " + byID + ">/dev/modem wm link", nil},
		"a number, and there is a name": {Request{ByPath: true}, serial("/dev/ttyUSB0", byID, byPath),
			"device.monopod.dev/serial=ttyUSB0 /dev/ttyUSB0>/dev/ttyUSB0 rw number", []string{"It has a name that stays; to follow that: monopod device add " + byID + " --name ttyUSB0 --class serial --container-path /dev/ttyUSB0 --replace"}},
		"a number, and there is none": {Request{ByPath: true}, serial("/dev/ttyUSB0"),
			"device.monopod.dev/serial=ttyUSB0 /dev/ttyUSB0>/dev/ttyUSB0 rw number", []string{"the device must keep its number", "where udev runs", "and then: udevadm control --reload"}},
		"udev's name": {Request{ByPath: true}, serial(byID, byID), "device.monopod.dev/serial=usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 " + byID + ">" + byID + " rw link", nil},
		"the port":    {Request{ByPath: true}, serial(byPath, byID, byPath), "device.monopod.dev/serial=pci-0000:00:14.0-usb-0:1:1.0-port0 " + byPath + ">" + byPath + " rw port", []string{"whatever is in that port"}},
		"an own rule": {Request{ByPath: true}, serial("/dev/modem"), "device.monopod.dev/serial=modem /dev/modem>/dev/modem rw link", nil},
		"a link of somebody": {Request{ByPath: true}, serial("/home/x/modem"),
			"device.monopod.dev/serial=ttyUSB0 /dev/ttyUSB0>/dev/ttyUSB0 rw number", []string{"is not followed: the device is /dev/ttyUSB0", "must keep its number", "where udev runs", "and then: udevadm control --reload"}},
		"a link that leads through somewhere": {Request{ByPath: true}, func() Node { n := serial("/dev/modem"); n.Hops = []string{"/proc/self/fd/0", n.Real}; return n }(),
			"device.monopod.dev/serial=ttyUSB0 /dev/ttyUSB0>/dev/ttyUSB0 rw number", []string{"is not followed", "must keep its number", "where udev runs", "and then: udevadm control --reload"}},
		"by USB": {Request{USB: &ftdi}, serial("/dev/ttyUSB0", byID, byPath),
			"device.monopod.dev/serial=usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 " + byID + ">" + byID + " rw link", nil},
		"by USB and path": {Request{USB: &USB{"0403", "6001", ""}, ByPath: true}, serial("/dev/ttyUSB0", byID),
			"device.monopod.dev/serial=usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 " + byID + ">/dev/ttyUSB0 rw link", nil},
		"by USB, no serial number": {Request{USB: &USB{"1a86", "7523", ""}, Name: "x"}, noSerial(serial("/dev/ttyUSB0", "/dev/serial/by-id/usb-1a86", byPath)),
			"device.monopod.dev/serial=x /dev/serial/by-id/usb-1a86>/dev/serial/by-id/usb-1a86 rw link", []string{"1a86:7523 has no serial number: where a second one of its model is plugged in, /dev/serial/by-id/usb-1a86 is either of them; " + byPath + " is the one in this port"}},
		"by USB, no link": {Request{USB: &ftdi, Name: "modem"}, serial("/dev/ttyUSB0"), "device.monopod.dev/serial=modem /dev/ttyUSB0>/dev/ttyUSB0 rw number",
			[]string{"must keep its number", `SUBSYSTEM=="tty", KERNEL=="ttyUSB*", ATTRS{idVendor}=="0403", ATTRS{idProduct}=="6001", ATTRS{serial}=="A50285BI", SYMLINK+="monopod/modem"`,
				"udevadm control --reload && udevadm trigger && udevadm settle && monopod device add /dev/monopod/modem --name modem --class serial --container-path /dev/ttyUSB0 --replace"}},
		"on the bus": {Request{USB: &ftdi, Name: "modem"}, Node{Path: "/dev/bus/usb/001/004", Real: "/dev/bus/usb/001/004", Type: "c", Subsystem: "usb", USB: &ftdi},
			"device.monopod.dev/usb=modem /dev/bus/usb/001/004>/dev/bus/usb/001/004 rw number", []string{"must stay plugged in", `SUBSYSTEM=="usb", ENV{DEVTYPE}=="usb_device", ATTR{idVendor}=="0403"`, "monopod device add /dev/monopod/modem"}},
		"a serial number of a prankster": {Request{ByPath: true}, func() Node { n := serial("/dev/ttyUSB0"); n.USB.Serial = `x", RUN+="y`; return n }(),
			"device.monopod.dev/serial=ttyUSB0 /dev/ttyUSB0>/dev/ttyUSB0 rw number", []string{"must keep its number", `ATTRS{idProduct}=="6001", SYMLINK+="monopod/ttyUSB0"`, "and then"}},
		"a long name": {Request{ByPath: true}, serial("/dev/serial/by-id/usb-" + strings.Repeat("x", 60)),
			"device.monopod.dev/serial=ttyUSB0 /dev/serial/by-id/usb-" + strings.Repeat("x", 60) + ">/dev/serial/by-id/usb-" + strings.Repeat("x", 60) + " rw link", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.req.Dev = "/dev"
			p, err := Decide(tc.req, tc.node)
			if err != nil {
				t.Fatal(err)
			}
			n := p.Spec.Devices[0].ContainerEdits.DeviceNodes[0]
			if got := p.Qualified() + " " + n.HostPath + ">" + n.Path + " " + n.Permissions + " " + string(p.Follows); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if n.Type != tc.node.Type || n.Major != 0 || n.Minor != 0 || p.Spec.Version != "0.5.0" || p.File != "monopod-device-"+p.Name+".yaml" {
				t.Errorf("%+v in %s, version %s", n, p.File, p.Spec.Version)
			}
			for i, part := range tc.notes {
				if i >= len(p.Notes) || !strings.Contains(p.Notes[i], part) {
					t.Errorf("note %d lacks %q: %q", i, part, p.Notes)
				}
			}
			if len(p.Notes) != len(tc.notes) {
				t.Errorf("notes: %q", p.Notes)
			}
		})
	}
}

func TestDecideRefuses(t *testing.T) {
	node := serial("/dev/ttyUSB0")
	for _, tc := range []struct {
		req  Request
		node Node
		want string
	}{
		{Request{}, Node{Path: "/dev/x", Type: "p"}, "/dev/x is no character or block device"},
		{Request{Name: "a b"}, node, `the name "a b" cannot be a device's`},
		{Request{Name: "all"}, node, `the name "all" stands for all devices`},
		{Request{Name: "../x"}, node, `the name "../x" cannot be a device's`},
		{Request{Name: strings.Repeat("x", 64)}, node, "has 64 characters, 63 are allowed"},
		{Request{Class: "a_"}, node, `the class "a_" makes no resource's name`},
		{Request{Class: "a/b"}, node, `the class "a/b" makes no resource's name`},
		{Request{Class: strings.Repeat("x", 64)}, node, "makes no resource's name"},
		{Request{Permissions: "rx"}, node, `--permissions is "rx": use letters of rwm`},
		{Request{Permissions: "rr"}, node, `--permissions is "rr"`},
		{Request{Permissions: " "}, node, `--permissions is " "`},
		{Request{ContainerPath: "dev/x"}, node, `--container-path is "dev/x"`},
		{Request{ContainerPath: "/dev/../x"}, node, `--container-path is "/dev/../x"`},
		{Request{ContainerPath: "/"}, node, `--container-path is "/"`},
		{Request{USB: &USB{"1a86", "7523", ""}}, node, "/dev/ttyUSB0 belongs to the USB device 0403:6001:A50285BI, not to 1a86:7523"},
		{Request{USB: &USB{"0403", "6001", "B"}}, node, "not to 0403:6001:B"},
		{Request{USB: &ftdi}, Node{Path: "/dev/null", Real: "/dev/null", Type: "c"}, "/dev/null belongs to no USB device that is known here"},
	} {
		tc.req.Dev = "/dev"
		_, err := Decide(tc.req, tc.node)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.req, err, tc.want)
		}
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%v is of no class", err)
		}
	}
}

func TestParseUSB(t *testing.T) {
	for s, want := range map[string]USB{"0403:6001": {"0403", "6001", ""}, "1A86:7523": {"1a86", "7523", ""}, "0403:6001:a:b": {"0403", "6001", "a:b"}} {
		if u, err := ParseUSB(s); err != nil || u != want {
			t.Errorf("%q is %+v, %v", s, u, err)
		}
	}
	for _, s := range []string{"", "0403", "0403:", "403:6001", "0403:6001:", "0x0403:6001", "0403:600g", "0403:6001 "} {
		if u, err := ParseUSB(s); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q is %+v, %v", s, u, err)
		}
	}
}

func FuzzParseUSB(f *testing.F) {
	for _, s := range []string{"0403:6001", "0403:6001:A50285BI", ":::", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := ParseUSB(s); err == nil {
			if again, err := ParseUSB(u.String()); err != nil || again != u {
				t.Errorf("%q is %+v, and that %+v, %v", s, u, again, err)
			}
		}
	})
}

func TestFolder(t *testing.T) {
	for want, dirs := range map[string][]string{"/etc/cdi": {"/etc/cdi", "/var/run/cdi"}, "/opt/cdi": {"/run/cdi", "/var/run/cdi", "/opt/cdi"}, "/runs": {"/run", "/runs"}, "": {"/run/x"}} {
		if got := Folder(dirs); got != want {
			t.Errorf("%q: %q", dirs, got)
		}
	}
}
