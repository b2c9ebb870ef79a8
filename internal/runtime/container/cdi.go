package container

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// injectCDI adds what the CDI specs say of the devices. The folders are read anew each time: a container that asks for a device
// is rare beside the reading of a few small files, and what is read is what is true now. A device that cannot be resolved
// is an error that says where it was looked for and what is wrong with each file there.
func injectCDI(spec *specs.Spec, devices []*cri.CDIDevice, dirs []string) error {
	if len(devices) == 0 {
		return nil
	}
	var names []string
	for _, d := range devices {
		if !parser.IsQualifiedName(d.GetName()) {
			return fmt.Errorf("CDI device %q: a name looks like vendor.com/class=device: %w", d.GetName(), errdefs.ErrInvalidArgument)
		}
		names = append(names, d.GetName())
	}
	cache, err := readCDI(dirs)
	if err != nil {
		return fmt.Errorf("CDI specs in %s: %w", strings.Join(dirs, ", "), err)
	}
	if unresolved, err := cache.InjectDevices(spec, names...); err != nil {
		return fmt.Errorf("CDI devices %s: %w%s: %w", strings.Join(names, ", "), err, cdiReport(cache, dirs, unresolved), errdefs.ErrInvalidArgument)
	}
	return nil
}

// readCDI reads the specs in the folders. The library panics at a null in a list of a spec (v1.1.1), and one bad file of a vendor
// must not end the runtime.
func readCDI(dirs []string) (cache *cdi.Cache, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a spec file there has a null where a device or an edit should be (%v): %w", fault, errdefs.ErrInvalidArgument)
		}
	}()
	return cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
}

// cdiReport says where unresolved devices were looked for, what there is of their kind, and what is wrong with each file.
func cdiReport(cache *cdi.Cache, dirs, unresolved []string) string {
	if len(unresolved) == 0 {
		return ""
	}
	var report strings.Builder
	for _, kind := range kindsOf(unresolved) {
		var names []string
		for _, device := range cache.ListDevices() {
			if name, ok := strings.CutPrefix(device, kind+"="); ok {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			fmt.Fprintf(&report, "; no spec that can be used defines devices of kind %s", kind)
		} else {
			fmt.Fprintf(&report, "; of kind %s there are %s", kind, strings.Join(names, ", "))
		}
	}
	var files []string
	for _, vendor := range cache.ListVendors() {
		for _, s := range cache.GetVendorSpecs(vendor) {
			files = append(files, s.GetPath())
		}
	}
	sort.Strings(files)
	fmt.Fprintf(&report, "; looked in %s, found %d specs", strings.Join(dirs, ", "), len(files))
	if len(files) > 0 {
		fmt.Fprintf(&report, " (%s)", strings.Join(files, ", "))
	}
	faults := cache.GetErrors()
	for _, path := range slices.Sorted(maps.Keys(faults)) {
		for _, fault := range faults[path] {
			fmt.Fprintf(&report, "; %s: %v", path, fault)
		}
	}
	return report.String()
}

// kindsOf are the kinds of qualified device names, each once.
func kindsOf(devices []string) []string {
	var kinds []string
	for _, d := range devices {
		vendor, class, _ := parser.ParseDevice(d)
		if kind := vendor + "/" + class; !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
