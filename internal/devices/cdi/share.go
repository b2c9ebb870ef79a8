package cdi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/inventory"
)

// Share says of how many containers devices may be at a time. Nothing keeps these apart.
type Share struct {
	// Devices is a pattern (package path's) of kinds, or of the devices' CDI names.
	Devices string
	// Count is from 1 to inventory.MaxShares; 1: of one at a time.
	Count int
}

// shareMark is in the names of all shares but the first, which has the device's. No CDI device's name has one.
const shareMark = "#"

// device is the name of the device of which a name is a share.
func device(name string) string {
	name, _, _ = strings.Cut(name, shareMark)
	return name
}

// sharer decides how devices are shared.
type sharer []sharing

type sharing struct {
	patterns
	count int
}

func newSharer(list []Share) (s sharer) {
	for _, e := range list {
		s = append(s, sharing{newPatterns([]string{e.Devices}), e.Count})
	}
	return s
}

// shares is of how many containers a device may be at a time; the first that says something of it is heard. The error is about what its spec says.
func (s sharer) shares(kind, name string, d *cdispec.Device) (int, error) {
	n, by := 1, ""
	qualified := inventory.CDIName(kind, name)
	if i := slices.IndexFunc(s, func(e sharing) bool { return e.match(qualified) || e.match(kind) }); i >= 0 {
		n, by = s[i].count, "the configuration"
	} else if text, ok := annotated(name, d.File.Spec); ok {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > inventory.MaxShares {
			return 1, fmt.Errorf("device %q is not shared: its annotation %s is %q: use a number from 1 to %d", name, inventory.ShareAnnotation, text, inventory.MaxShares)
		}
		by = "its annotation " + inventory.ShareAnnotation
	}
	if n > 1 && len(d.Edits.NetDevices)+len(d.File.Spec.ContainerEdits.NetDevices) > 0 {
		return 1, fmt.Errorf("device %q is not shared, though %s says so: it has a network interface, which is in one container at a time", name, by)
	}
	return n, nil
}

func annotated(name string, spec *specs.Spec) (text string, ok bool) {
	if i := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == name }); i >= 0 {
		if text, ok = spec.Devices[i].Annotations[inventory.ShareAnnotation]; ok {
			return text, true
		}
	}
	text, ok = spec.Annotations[inventory.ShareAnnotation]
	return text, ok
}

// split makes the shares of devices, which are in order, as what is returned; n says how many.
func split(devices []inventory.Device, n func(inventory.Device) int) []inventory.Device {
	all := make([]inventory.Device, 0, len(devices))
	for _, d := range devices {
		count := n(d)
		if count > 1 {
			d.ShareOf = d.Name
		}
		all = append(all, d)
		for i := 2; i <= count; i++ {
			share := d
			share.Name = fmt.Sprint(d.ShareOf, shareMark, i)
			all = append(all, share)
		}
	}
	if len(all) > len(devices) {
		slices.SortFunc(all, inventory.Compare)
	}
	return all
}
