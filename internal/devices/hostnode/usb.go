package hostnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/hostdevice"
)

// Attached is a USB device that is plugged in.
type Attached struct {
	hostdevice.USB
	// Product is what it calls itself; Port the place where it is plugged in, such as 1-1.4.
	Product string
	Port    string
	// Nodes are the paths of the nodes of its functions; of one for which there is no driver, that of the device itself on the bus.
	Nodes []string
}

// String is the device as people tell it apart.
func (a Attached) String() string {
	if a.Product == "" {
		return fmt.Sprintf("%s (port %s)", a.USB, a.Port)
	}
	return fmt.Sprintf("%s (%s, port %s)", a.USB, a.Product, a.Port)
}

// functions are the subsystems whose nodes are what somebody means by a USB device. Others (input, sound) have to be named.
var functions = []string{"tty", "hidraw", "video4linux", "usbmisc", "block"}

// Attached lists the USB devices that are plugged in, without hubs, by their ports. A host without USB has none.
func (h Host) Attached() ([]Attached, error) {
	bus := filepath.Join(h.Sys, "bus/usb/devices")
	entries, err := os.ReadDir(bus)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Attached
	for _, e := range entries {
		dir, err := filepath.EvalSymlinks(filepath.Join(bus, e.Name()))
		if err != nil {
			continue // it was unplugged meanwhile
		}
		usb, ok := usbDevice(dir) // interfaces are listed too
		if !ok || attribute(dir, "bDeviceClass") == hubClass {
			continue
		}
		all = append(all, Attached{USB: usb, Product: printable(attribute(dir, "product")), Port: e.Name(), Nodes: h.nodesOf(dir)})
	}
	return all, nil
}

const hubClass = "09"

// Find returns the one node of the one device that is wanted. Errors: errdefs.ErrNotFound when there is none, ErrFailedPrecondition when there
// are several, each with what there is.
func (h Host) Find(wanted hostdevice.USB) (string, error) {
	all, err := h.Attached()
	if err != nil {
		return "", err
	}
	var fit []Attached
	for _, a := range all {
		if a.Is(wanted) {
			fit = append(fit, a)
		}
	}
	switch {
	case len(fit) == 0:
		return "", fmt.Errorf("no USB device %s is plugged in: %s: %w", wanted, orNone("there are", describe(all), "the host shows none at all"), errdefs.ErrNotFound)
	case len(fit) > 1:
		return "", fmt.Errorf("%d USB devices are %s: %s; say which by its serial number (--usb VENDOR:PRODUCT:SERIAL), or by its path: %w",
			len(fit), wanted, strings.Join(describe(fit), ", "), errdefs.ErrFailedPrecondition)
	}
	switch nodes := fit[0].Nodes; len(nodes) {
	case 0:
		return "", fmt.Errorf("the USB device %s has no device node below %s: load its driver, or make its node on the bus: %w", fit[0], h.Dev, errdefs.ErrFailedPrecondition)
	case 1:
		return nodes[0], nil
	default:
		return "", fmt.Errorf("the USB device %s has several nodes: %s; name the one that is meant: monopod device add %s --usb %s: %w",
			fit[0], strings.Join(nodes, ", "), nodes[0], wanted, errdefs.ErrFailedPrecondition)
	}
}

func orNone(head string, all []string, none string) string {
	if len(all) == 0 {
		return none
	}
	return head + " " + strings.Join(all, ", ")
}

// maxTold bounds what an error lists.
const maxTold = 12

func describe(all []Attached) (texts []string) {
	for i, a := range all {
		if i == maxTold {
			return append(texts, fmt.Sprintf("and %d more", len(all)-i))
		}
		texts = append(texts, a.String())
	}
	return texts
}

// nodesOf are the nodes of the functions of a USB device, sorted; of a device without any its node on the bus.
func (h Host) nodesOf(dir string) (nodes []string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // what has gone meanwhile has no nodes
		}
		if _, other := usbDevice(path); other && path != dir {
			return fs.SkipDir // it is plugged into this one
		}
		if node := h.nodeOf(path); node != "" && slices.Contains(functions, subsystemOf(path)) {
			nodes = append(nodes, node)
		}
		return nil
	})
	if node := h.nodeOf(dir); len(nodes) == 0 && node != "" {
		nodes = []string{node}
	}
	slices.Sort(nodes)
	return nodes
}

// nodeOf is the node of a device in sysfs, if there is one.
func (h Host) nodeOf(dir string) string {
	for line := range strings.Lines(attribute(dir, "uevent")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok && filepath.IsLocal(name) {
			path := filepath.Join(h.Dev, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeDevice != 0 {
				return path
			}
		}
	}
	return ""
}

// usbDevice is what a folder of sysfs says of the USB device that it is; false: it is none.
func usbDevice(dir string) (hostdevice.USB, bool) {
	u := hostdevice.USB{Vendor: attribute(dir, "idVendor"), Product: attribute(dir, "idProduct"), Serial: printable(attribute(dir, "serial"))}
	return u, u.Vendor != "" && u.Product != ""
}

// attribute is the content of a file of sysfs; empty when there is none.
func attribute(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// printable takes out what a device had better not say to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
