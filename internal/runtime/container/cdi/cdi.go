// Package cdi injects the CDI devices that a container asks for into its OCI specification.
package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/ocispec"
)

// Config is what an Injector works with.
type Config struct {
	// Dirs are the folders of the CDI specs.
	Dirs []string
	// IgnoreAnnotations: only CRI's CDI_devices ask for devices, no annotations of containers.
	IgnoreAnnotations bool
}

// Injector adds to specifications what CDI devices need. It is safe for concurrent use.
type Injector struct {
	cfg    Config
	reader cdispec.Reader
}

// New returns an Injector. The folders need not be there.
func New(cfg Config) *Injector { return &Injector{cfg: cfg} }

// Inject adds what the CDI specs say of a container's devices, in the order in which it asks for them: for each device first the
// edits of its file, once, then its own. The folders are read anew each time, so what is injected is what is true now. Nothing is
// injected of a container one of whose devices cannot be.
//
// lent are the host's network interfaces that the pod has from an earlier container, with their names there. They stay as they are: the OCI
// runtime would look for them on the host.
func (i *Injector) Inject(spec *specs.Spec, cfg *cri.ContainerConfig, sandbox *cri.PodSandboxConfig, lent map[string]string) error {
	names, err := requested(cfg, !i.cfg.IgnoreAnnotations)
	if err != nil || len(names) == 0 {
		return err
	}
	devices, err := resolve(i.reader.Load(i.cfg.Dirs), names)
	if err != nil {
		return err
	}
	has := func(n *cdi.LinuxNetDevice) bool { return lent[n.HostInterfaceName] == n.Name } // no name is empty
	for _, d := range devices {
		if err := cdispec.ThisHost().CheckBut(d, has); err != nil {
			return fmt.Errorf("CDI device %s: %w: %w", d.Name, err, errdefs.ErrFailedPrecondition)
		}
	}
	uids, gids, _ := ocispec.UserNamespace(sandbox)
	files := map[*cdispec.File]bool{}
	for _, d := range devices {
		edits := []edit{{of: "containerEdits of all its devices", ContainerEdits: &d.File.Spec.ContainerEdits}, {of: "the device's containerEdits", ContainerEdits: d.Edits}}
		if files[d.File] {
			edits = edits[1:]
		}
		files[d.File] = true
		for _, e := range edits {
			if err := e.apply(spec, uids, gids); err != nil {
				return fmt.Errorf("CDI device %s, %s of %s: %w", d.Name, e.of, d.File.Path, err)
			}
		}
	}
	for host, name := range NetDevices(spec) {
		if lent[host] == name {
			delete(spec.Linux.NetDevices, host)
		}
	}
	return nil
}

// NetDevices are the host's network interfaces that a container is to get, with the names that they get.
func NetDevices(spec *specs.Spec) map[string]string {
	all := map[string]string{}
	for host, n := range spec.Linux.NetDevices {
		all[host] = cmp.Or(n.Name, host)
	}
	return all
}

// requested are the devices that a container asks for, each once: those of CRI's CDI_devices, then those of its annotations, by key.
func requested(cfg *cri.ContainerConfig, annotations bool) ([]string, error) {
	var names []string
	add := func(name, from string) error {
		if _, _, err := cdispec.ParseName(name); err != nil {
			return fmt.Errorf("CDI device %w (%s): %w", err, from, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return nil
	}
	for i, d := range cfg.GetCDIDevices() {
		if err := add(d.GetName(), fmt.Sprintf("CDI_devices[%d]", i)); err != nil {
			return nil, err
		}
	}
	if !annotations {
		return names, nil
	}
	for key, name := range cdispec.Annotated(cfg.GetAnnotations()) {
		if err := add(name, "annotation "+key); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// resolve finds the devices of names. The error names each that is not there, why, and where it was looked for.
func resolve(set *cdispec.Set, names []string) ([]*cdispec.Device, error) {
	var devices []*cdispec.Device
	var errs []error
	for _, name := range names {
		d, ok := set.Devices[name]
		if !ok {
			errs = append(errs, unresolved(set, name))
			continue
		}
		devices = append(devices, d)
	}
	if len(errs) == 0 {
		return devices, nil
	}
	return nil, fmt.Errorf("%w%s: %w", joinLine(errs), report(set, names), errdefs.ErrInvalidArgument)
}

// unresolved says why a name has no device: files contradict each other, nobody knows its kind, or its kind has others.
func unresolved(set *cdispec.Set, name string) error {
	for _, f := range set.Faults {
		if f.Device == name {
			return fmt.Errorf("CDI device %s: %s", name, f)
		}
	}
	kind, device, _ := strings.Cut(name, "=")
	var others []string
	for other := range set.Devices {
		if n, ok := strings.CutPrefix(other, kind+"="); ok {
			others = append(others, n)
		}
	}
	if len(others) == 0 {
		return fmt.Errorf("CDI device %s: no spec that can be used defines devices of kind %s", name, kind)
	}
	slices.Sort(others)
	return fmt.Errorf("CDI device %s: kind %s has no device %q, it has %s", name, kind, device, strings.Join(listed(others), ", "))
}

// maxListed bounds the lists of an error.
const maxListed = 20

// report says where devices were looked for, and what is wrong with each file there, but for what was said of the names that were asked for.
func report(set *cdispec.Set, names []string) string {
	var report strings.Builder
	fmt.Fprintf(&report, "; looked in %s, found %d specs", strings.Join(set.Dirs, ", "), len(set.Files))
	var files []string
	for _, f := range set.Files {
		files = append(files, f.Path)
	}
	if len(files) > 0 {
		fmt.Fprintf(&report, " (%s)", strings.Join(listed(files), ", "))
	}
	faults := slices.DeleteFunc(slices.Clone(set.Faults), func(f cdispec.Fault) bool { return slices.Contains(names, f.Device) })
	for i, f := range faults {
		if i == maxListed {
			fmt.Fprintf(&report, "; and %d more faults", len(faults)-maxListed)
			break
		}
		fmt.Fprintf(&report, "; %s", f)
	}
	return report.String()
}

// joinLine is errors.Join on one line.
func joinLine(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	parts := make([]string, len(errs))
	for i, err := range errs {
		parts[i] = err.Error()
	}
	return errors.New(strings.Join(parts, "; "))
}
