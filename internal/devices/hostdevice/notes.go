package hostdevice

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// notes are what whoever adds the device should know. Each is one line.
func notes(req Request, n Node, p Plan) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(n.Hops) > 0 && p.HostPath == n.Real {
		say("%s is a link that no device manager makes anew, and is not followed: the device is %s", n.Path, n.Real)
	}
	switch {
	case p.Follows == ByPort:
		say("%s is the name of whatever is in that port: plugged in elsewhere the device is not found, and another one in its place is taken for it", p.HostPath)
	case p.Follows == ByLink && n.USB != nil && n.USB.Serial == "" && strings.HasPrefix(path.Base(path.Dir(p.HostPath)), "by-id"):
		say("the USB device %s has no serial number: where a second one of its model is plugged in, %s is either of them%s", *n.USB, p.HostPath, elsewhere(n, "by-path"))
	case p.Follows == ByNumber && len(n.Links) > 0 && n.USB != nil:
		say("plugged in again it may get another number, and another device this one. It has a name that stays; to follow that: %s", again(req, p, n.Links[0]))
	case p.Follows == ByNumber && len(n.Links) > 0:
		say("after a reboot the kernel may find its devices in another order. It has a name that stays; to follow that: %s", again(req, p, n.Links[0]))
	case p.Follows == ByNumber && n.Subsystem == "usb":
		say("the device must stay plugged in: the number of %s is another one each time, and this host makes no other name for it", n.Real)
		all = append(all, remedy(req, n, p)...)
	case p.Follows == ByNumber && n.USB != nil:
		say("the device must keep its number: this host makes no name for it that stays, so plugged in again it may not be %s, and another device may", n.Real)
		all = append(all, remedy(req, n, p)...)
	}
	if req.Shares > 1 {
		say("up to %d containers have it at a time, each as if it were alone: nothing keeps them apart or divides it between them, and what one does to it the others see",
			req.Shares)
	}
	if n.Type == "b" && strings.Contains(p.Permissions, "w") {
		say("whoever has it writes to the disk itself: it must not be mounted on the host at the same time")
	}
	return all
}

// elsewhere names another link, if there is one.
func elsewhere(n Node, kind string) string {
	for _, l := range n.Links {
		if path.Base(path.Dir(l)) == kind {
			return "; " + l + " is the one in this port"
		}
	}
	return ""
}

// Rule is the udev rule that makes the link DEV/monopod/NAME for a node of a USB device; empty for any other.
func Rule(n Node, name string) string {
	if n.USB == nil || n.Subsystem == "" {
		return ""
	}
	attrs := "ATTRS"
	match := fmt.Sprintf("SUBSYSTEM==%q", n.Subsystem)
	if n.Subsystem == "usb" {
		match, attrs = match+`, ENV{DEVTYPE}=="usb_device"`, "ATTR"
	} else if base := strings.TrimRight(path.Base(n.Real), "0123456789"); base != "" {
		match += fmt.Sprintf(", KERNEL==%q", base+"*")
	}
	match += fmt.Sprintf(", %s{idVendor}==%q, %s{idProduct}==%q", attrs, n.USB.Vendor, attrs, n.USB.Product)
	if n.USB.Serial != "" && strings.Trim(n.USB.Serial, plain) == "" {
		match += fmt.Sprintf(", %s{serial}==%q", attrs, n.USB.Serial)
	}
	return match + fmt.Sprintf(", SYMLINK+=%q", LinkFolder+"/"+name)
}

// plain are the characters of serial numbers that need no quoting in a udev rule. What a device says of itself may be anything.
const plain = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-."

// LinkFolder is the folder below the host's /dev in which Rule makes its links.
const LinkFolder = "monopod"

// remedy tells how a device is followed for which the host makes no name.
func remedy(req Request, n Node, p Plan) []string {
	rule := Rule(n, p.Name)
	if rule == "" {
		return nil
	}
	return []string{
		"where udev runs, this line in /etc/udev/rules.d/70-monopod.rules makes a name: " + rule,
		"and then: udevadm control --reload && udevadm trigger && udevadm settle && " + again(req, p, path.Join(req.Dev, LinkFolder, p.Name)),
	}
}

// again is the command that lets the device be followed by another path, and leaves all else of it as it is.
func again(req Request, p Plan, link string) string {
	words := []string{"monopod device add", link, "--name", p.Name, "--class", strings.TrimPrefix(p.Kind, Vendor+"/"), "--container-path", p.ContainerPath}
	if req.Permissions != "" && req.Permissions != "rw" {
		words = append(words, "--permissions", req.Permissions)
	}
	if req.Shares > 1 {
		words = append(words, "--share", strconv.Itoa(req.Shares))
	}
	return strings.Join(append(words, "--replace"), " ")
}
