package contract

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/contract/judge"
)

// view is the host as the plugin sees it: what its answers name is looked for there.
type view struct {
	cdiDirs []string
	program *program // nil: the plugin runs already, and sees what this process does
}

// host looks at what the answers name.
func (v view) host(all []judge.Allocation) judge.Host {
	h := judge.Host{Paths: map[string]string{}, CDI: map[string]string{}}
	var reader cdispec.Reader
	dirs := slices.Clone(v.cdiDirs)
	for i, dir := range dirs {
		if v.program != nil && filepath.Clean(dir) == cdiFolder { // the plugin's is the test's own
			dirs[i] = v.program.place.cdi
		}
	}
	set := reader.Load(dirs)
	for _, a := range all {
		for _, c := range a.Response.GetContainerResponses() {
			for _, m := range c.GetMounts() {
				h.Paths[m.GetHostPath()] = v.pathKind(m.GetHostPath())
			}
			for _, d := range c.GetDevices() {
				h.Paths[d.GetHostPath()] = v.pathKind(d.GetHostPath())
			}
			for _, d := range c.GetCdiDevices() {
				if _, known := h.CDI[d.GetName()]; !known {
					h.CDI[d.GetName()] = v.checkCDI(set, d.GetName())
				}
			}
		}
	}
	return h
}

// pathKind says what is at a path, as the plugin sees it.
func (v view) pathKind(path string) string {
	places := []string{path}
	if v.program != nil {
		places = []string{v.program.outside(path), path}
	}
	for _, p := range places {
		st, err := os.Stat(p)
		switch {
		case err != nil:
		case st.IsDir():
			return "a folder"
		case st.Mode()&os.ModeDevice != 0:
			return "a device node"
		default:
			return "a file"
		}
	}
	return ""
}

// checkCDI says why a name cannot be injected, without the name where others may have the same fault.
func (v view) checkCDI(set *cdispec.Set, name string) string {
	if _, _, err := cdispec.ParseName(name); err != nil {
		return strings.TrimPrefix(errorWords(err), fmt.Sprintf("%q: ", name))
	}
	device, ok := set.Devices[name]
	if !ok {
		why := "no CDI spec defines it in " + strings.Join(v.cdiDirs, ", ")
		if len(set.Faults) > 0 {
			why += fmt.Sprintf(" (a file there cannot be used: %s)", set.Faults[0])
		}
		return why
	}
	err := cdispec.ThisHost().Check(device, false)
	if drift := (*cdispec.DriftError)(nil); errors.As(err, &drift) {
		return drift.Spec + " does not fit this host: " + drift.Why()
	}
	return errorWords(err)
}
