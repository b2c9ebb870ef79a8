package cdispec

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Validate says all that is wrong with a spec, on one line.
func Validate(spec *specs.Spec) error {
	var faults []string
	add := func(where string, err error) {
		if err != nil && !slices.Contains(faults, where+err.Error()) {
			faults = append(faults, where+err.Error())
		}
	}
	if nulls := checkNulls(spec); nulls != nil {
		return fmt.Errorf("invalid CDI Spec: %w", nulls) // everybody else stumbles over them
	}
	add("", specs.ValidateVersion(spec))
	add("", CheckKind(spec.Kind))
	add("containerEdits: ", checkEdits(&spec.ContainerEdits))
	seen := map[string]bool{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		where := fmt.Sprintf("device %q: ", d.Name)
		add(where, parser.ValidateDeviceName(d.Name))
		add(where, checkEdits(&d.ContainerEdits))
		if seen[d.Name] {
			add(where, errors.New("there are several of this name"))
		}
		seen[d.Name] = true
	}
	if len(spec.Devices) == 0 {
		add("", errors.New("invalid spec, no devices"))
	}
	if len(faults) > 0 {
		return errors.New("invalid CDI Spec: " + strings.Join(faults, "; "))
	}
	return nil
}

// checkEdits: what the library checks, and what the CDI specification says of hooks beyond it.
func checkEdits(e *specs.ContainerEdits) error {
	if err := (&cdilib.ContainerEdits{ContainerEdits: e}).Validate(); err != nil {
		return err
	}
	for _, h := range e.Hooks {
		if !filepath.IsAbs(h.Path) {
			return fmt.Errorf("the path %q of a %s hook is not absolute", h.Path, h.HookName)
		}
		if h.Timeout != nil && *h.Timeout <= 0 {
			return fmt.Errorf("the timeout of the %s hook %s is %d; it must be greater than zero, or not be there", h.HookName, h.Path, *h.Timeout)
		}
	}
	return nil
}

// checkNulls finds the empty entries of lists, at which the library panics.
func checkNulls(spec *specs.Spec) error {
	if err := nullsOf(&spec.ContainerEdits); err != nil {
		return fmt.Errorf("containerEdits: %w", err)
	}
	for i := range spec.Devices {
		if err := nullsOf(&spec.Devices[i].ContainerEdits); err != nil {
			return fmt.Errorf("device %q: %w", spec.Devices[i].Name, err)
		}
	}
	return nil
}

func nullsOf(e *specs.ContainerEdits) error {
	for _, l := range []struct {
		name string
		at   int
	}{{"deviceNodes", slices.Index(e.DeviceNodes, nil)}, {"netDevices", slices.Index(e.NetDevices, nil)}, {"hooks", slices.Index(e.Hooks, nil)}, {"mounts", slices.Index(e.Mounts, nil)}} {
		if l.at >= 0 {
			return fmt.Errorf("%s[%d] is empty (null)", l.name, l.at)
		}
	}
	return nil
}
