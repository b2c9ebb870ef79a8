package hostdevice

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/util/validation"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// maxName is the length of a device's name: also that of its file, and what others show.
const maxName = 63

// nameOfAll is what CDI calls the whole of a kind.
const nameOfAll = "all"

// classes are the classes of the kernel's subsystems. What is in none is of the class host.
var classes = map[string]string{"tty": "serial", "hidraw": "hid", "video4linux": "video", "input": "input", "block": "block", "usb": "usb", "sound": "sound",
	"i2c-dev": "i2c", "spidev": "spi", "gpio": "gpio", "drm": "drm", "watchdog": "watchdog"}

// names are the beginnings of nodes' names by which their subsystem is known where sysfs does not tell it.
var names = []struct{ prefix, subsystem string }{
	{"ttyUSB", "tty"}, {"ttyACM", "tty"}, {"ttyS", "tty"}, {"ttyAMA", "tty"}, {"hidraw", "hidraw"}, {"video", "video4linux"}, {"i2c-", "i2c-dev"}, {"spidev", "spidev"},
	{"gpiochip", "gpio"}, {"watchdog", "watchdog"},
}

// classOf is the class that a device has when nobody says one.
func classOf(n Node) string {
	base, subsystem := path.Base(n.Real), n.Subsystem
	for _, known := range names {
		if subsystem == "" && strings.HasPrefix(base, known.prefix) {
			subsystem = known.subsystem
		}
	}
	if n.Type == "b" {
		subsystem = "block"
	}
	serial := len(base) > len("tty") && strings.HasPrefix(base, "tty") && (base[3] < '0' || base[3] > '9') // tty1 is a screen and a keyboard
	if class, ok := classes[subsystem]; ok && (subsystem != "tty" || serial) {
		return class
	}
	return "host"
}

// nameOf is the name that a device has when nobody says one: that of the node in the spec, which is what stays.
func nameOf(p Plan, n Node) string {
	if base := path.Base(p.HostPath); len(base) <= maxName && parser.ValidateDeviceName(base) == nil {
		return base
	}
	return path.Base(n.Real)
}

// The beginning and the end of the name of a file that is written here.
const (
	filePrefix = "monopod-device-"
	fileSuffix = ".yaml"
)

// FileOf is the bare name of the file of a device. A name is one device's, whatever its class.
func FileOf(name string) string { return filePrefix + name + fileSuffix }

// CheckName says what is wrong with the name of a device.
func CheckName(name string) error {
	switch err := parser.ValidateDeviceName(name); {
	case err != nil:
		return fmt.Errorf("the name %q cannot be a device's: %w; name it with --name, of letters, digits, dashes, underscores, dots and colons: %w", name, err, errdefs.ErrInvalidArgument)
	case len(name) > maxName:
		return fmt.Errorf("the name %q has %d characters, %d are allowed: give a shorter --name: %w", name, len(name), maxName, errdefs.ErrInvalidArgument)
	case name == nameOfAll:
		return fmt.Errorf("the name %q stands for all devices of a kind and cannot be one device's: give another --name: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// IsKind says that a kind is of those that are planned here.
func IsKind(kind string) bool { return strings.HasPrefix(kind, Vendor+"/") }

func (p Plan) check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	// Quotas count a resource under its name with this prefix, which must fit as well.
	if reasons := validation.IsQualifiedName("requests." + p.Kind); len(reasons) > 0 {
		return fmt.Errorf("the class %q makes no resource's name: %s; give another --class: %w", strings.TrimPrefix(p.Kind, Vendor+"/"), strings.Join(reasons, "; "), errdefs.ErrInvalidArgument)
	}
	if p.Permissions != strings.Trim(p.Permissions, " ") || strings.Trim(p.Permissions, "rwm") != "" || repeats(p.Permissions) {
		return fmt.Errorf("--permissions is %q: use letters of rwm, each once (r read, w write, m mknod): %w", p.Permissions, errdefs.ErrInvalidArgument)
	}
	if !path.IsAbs(p.ContainerPath) || path.Clean(p.ContainerPath) != p.ContainerPath || p.ContainerPath == "/" {
		return fmt.Errorf("--container-path is %q: give an absolute path without \"..\", such as /dev/modem: %w", p.ContainerPath, errdefs.ErrInvalidArgument)
	}
	return nil
}

func repeats(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(s, s[i]) != i {
			return true
		}
	}
	return false
}

// ParseUSB reads VENDOR:PRODUCT or VENDOR:PRODUCT:SERIAL.
func ParseUSB(s string) (USB, error) {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) < 2 || !isID(parts[0]) || !isID(parts[1]) || len(parts) == 3 && parts[2] == "" {
		return USB{}, fmt.Errorf("--usb is %q: give VENDOR:PRODUCT or VENDOR:PRODUCT:SERIAL, four hexadecimal digits each, as lsusb shows them (0403:6001): %w", s, errdefs.ErrInvalidArgument)
	}
	u := USB{Vendor: strings.ToLower(parts[0]), Product: strings.ToLower(parts[1])}
	if len(parts) == 3 {
		u.Serial = parts[2]
	}
	return u, nil
}

func isID(s string) bool {
	return len(s) == 4 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}
