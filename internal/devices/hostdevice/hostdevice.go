// Package hostdevice decides what CDI spec gives a device node of the host to pods: by which of its names the device is followed, what it is called,
// and what has to be said to whoever adds it. It is told what the host has (package hostnode looks) and looks at nothing itself.
//
// What it plans is one file for each device, of a kind "device.monopod.dev/CLASS" that is an extended resource's name. The file leaves the device's
// number away, so that a node which goes and comes again under its name is the device again.
package hostdevice

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Vendor is the vendor of every kind that is planned here.
const Vendor = "device.monopod.dev"

// Node is a device node as it was found on the host.
type Node struct {
	// Path is the name by which it was found, absolute, without links on the way to its last element.
	Path string
	// Hops are the paths that Path leads over as a symbolic link, Real the last of them; a path that is no link leads nowhere else, and is Real.
	Hops []string
	Real string
	// Type is "c" or "b".
	Type         string
	Major, Minor uint32
	// Subsystem is the kernel's (tty, hidraw, video4linux, usb ...); empty: not known.
	Subsystem string
	// Links are its stable names, the better first.
	Links []string
	// USB is the USB device of which it is a part; nil: of none that is known.
	USB *USB
}

// USB names a USB device: four hexadecimal digits each, and a serial number that many do not have.
type USB struct {
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	Serial  string `json:"serial,omitempty"`
}

// String is VENDOR:PRODUCT or VENDOR:PRODUCT:SERIAL.
func (u USB) String() string {
	if u.Serial == "" {
		return u.Vendor + ":" + u.Product
	}
	return u.Vendor + ":" + u.Product + ":" + u.Serial
}

// Is says that a device that was found is one that is wanted: one without a serial number wants any.
func (u USB) Is(wanted USB) bool {
	return u.Vendor == wanted.Vendor && u.Product == wanted.Product && (wanted.Serial == "" || u.Serial == wanted.Serial)
}

// Request is what somebody asks for. Empty fields are decided here.
type Request struct {
	// Dev is the folder of the host's device nodes, /dev.
	Dev           string
	Name, Class   string
	Permissions   string
	ContainerPath string
	// Shares is how many containers may have it at a time; 0: one.
	Shares int
	// USB is the USB device that the node has to be a part of, and by which it is to be followed.
	USB *USB
	// ByPath says that the user has named Node.Path; else it was found by USB.
	ByPath bool
}

// Plan is what is to be written, and said.
type Plan struct {
	Kind, Name string
	HostPath   string // in the spec
	// ContainerPath is where containers have it, Permissions what they may do with it.
	ContainerPath, Permissions string
	// Follows says by what the device is known when it is plugged in again.
	Follows Follows
	// File is the bare name of the spec's file, Content what is in it.
	File string
	Spec *specs.Spec
	// Notes are sentences for whoever adds the device.
	Notes []string
}

// Qualified is the device's CDI name.
func (p Plan) Qualified() string { return p.Kind + "=" + p.Name }

// Follows is the way in which a device is known again.
type Follows string

const (
	// ByLink: by a symbolic link that udev makes for this device wherever it is.
	ByLink Follows = "link"
	// ByPort: by a link that udev makes for whatever is in this port.
	ByPort Follows = "port"
	// ByNumber: by its node's name, which the kernel gives to the next one of its driver.
	ByNumber Follows = "number"
)

// Decide makes the plan. Errors are of the class ErrInvalidArgument, or ErrFailedPrecondition where the host has something else than was asked for.
func Decide(req Request, n Node) (Plan, error) {
	if n.Type != "c" && n.Type != "b" {
		return Plan{}, fmt.Errorf("%s is no character or block device: name a device node: %w", n.Path, errdefs.ErrInvalidArgument)
	}
	if req.Shares < 0 || req.Shares > inventory.MaxShares {
		return Plan{}, fmt.Errorf("--share is %d: give a number of containers from 1 to %d: %w", req.Shares, inventory.MaxShares, errdefs.ErrInvalidArgument)
	}
	if req.USB != nil && (n.USB == nil || !n.USB.Is(*req.USB)) {
		found := "no USB device that is known here"
		if n.USB != nil {
			found = "the USB device " + n.USB.String()
		}
		return Plan{}, fmt.Errorf("%s belongs to %s, not to %s: leave --usb away, or the path: %w", n.Path, found, *req.USB, errdefs.ErrFailedPrecondition)
	}
	p := Plan{Permissions: req.Permissions, ContainerPath: req.ContainerPath}
	p.HostPath, p.Follows = followed(req, n)
	if p.Permissions == "" {
		p.Permissions = "rw"
	}
	if p.ContainerPath == "" {
		if p.ContainerPath = p.HostPath; req.ByPath && below(req.Dev, n.Path) && (len(n.Hops) == 0 || p.HostPath == n.Path) {
			p.ContainerPath = n.Path // what the user knows it by; not so a link that is not followed
		}
	}
	class := req.Class
	if class == "" {
		class = classOf(n)
	}
	if p.Name = req.Name; p.Name == "" {
		p.Name = nameOf(p, n)
	}
	p.Kind = Vendor + "/" + class
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	p.File = FileOf(p.Name)
	p.Spec = &specs.Spec{Kind: p.Kind, Devices: []specs.Device{{Name: p.Name, ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{
		{Path: p.ContainerPath, HostPath: p.HostPath, Type: n.Type, Permissions: p.Permissions}}}}}}
	if req.Shares > 1 {
		p.Spec.Devices[0].Annotations = map[string]string{inventory.ShareAnnotation: strconv.Itoa(req.Shares)}
	}
	version, err := specs.MinimumRequiredVersion(p.Spec)
	if err != nil {
		return Plan{}, err
	}
	p.Spec.Version = version
	p.Notes = notes(req, n, p)
	return p, nil
}

// followed is the name of a node that goes into the spec. A name that the user gives is kept where somebody makes it for the device anew each
// time; with --usb the best that there is is taken.
func followed(req Request, n Node) (string, Follows) {
	if len(n.Hops) > 0 && below(req.Dev, n.Path) && !slices.ContainsFunc(n.Hops, func(hop string) bool { return !below(req.Dev, hop) }) {
		return n.Path, how(n.Path)
	}
	if req.USB != nil && len(n.Links) > 0 {
		return n.Links[0], how(n.Links[0])
	}
	return n.Real, ByNumber
}

func how(link string) Follows {
	if strings.HasPrefix(path.Base(path.Dir(link)), "by-path") {
		return ByPort
	}
	return ByLink
}

func below(dir, p string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// forgotten are folders that are empty after a reboot.
var forgotten = []string{"/run", "/var/run", "/tmp", "/dev"}

// Survives says that a folder of specs is there after a reboot.
func Survives(dir string) bool {
	return !slices.ContainsFunc(forgotten, func(root string) bool { return dir == root || below(root, dir) })
}

// Folder is the one of a node's folders of specs in which a device is written down: the first that survives a reboot; empty: none does.
func Folder(dirs []string) string {
	if i := slices.IndexFunc(dirs, Survives); i >= 0 {
		return dirs[i]
	}
	return ""
}
