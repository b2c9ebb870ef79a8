package cdi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/inventory"
)

// nameOfAll is the device name that vendors' tools give to the whole of a kind.
const nameOfAll = "all"

// catalog is the folders' content at one time. It is not changed after load; look makes another one of it.
type catalog struct {
	snapshot *inventory.Snapshot
	// units are the devices without regard to how often each may be given; shares are the numbers of those that are shared, by CDI name.
	units  []inventory.Device
	shares map[string]int
	// byName has the device of every CDI name that can be injected, of aliases and of kinds that are no resources too.
	byName map[string]*cdispec.Device
	// paths are the host paths on which the devices' health depends.
	paths []string
	// problems are those of the files; the snapshot has them and what else there is.
	problems []inventory.Problem
}

// load reads all folders. It never fails: what cannot be read or used is a problem of the snapshot.
func load(r *cdispec.Reader, dirs []string, kinds advertiser) *catalog {
	set := r.Load(dirs)
	c := &catalog{snapshot: &inventory.Snapshot{Places: dirs}, byName: set.Devices}
	for _, f := range set.Faults {
		resource, _, _ := strings.Cut(f.Device, "=")
		c.problems = append(c.problems, inventory.Problem{Resource: resource, Paths: f.Paths, Message: f.Message})
	}
	counted := map[*cdispec.File]bool{}
	byKind := map[string][]string{} // the names of each resource's devices
	for _, f := range set.Files {
		if !kinds.advertises(f.Spec.Kind, f.Path) {
			continue
		}
		if reasons := notAResource(f.Spec.Kind); len(reasons) > 0 {
			c.problems = append(c.problems, inventory.Problem{Resource: f.Spec.Kind, Paths: []string{f.Path}, Message: fmt.Sprintf(
				"kind %q is valid for CDI, but pods cannot ask for it as a resource: %s", f.Spec.Kind, strings.Join(reasons, "; "))})
			continue
		}
		counted[f], byKind[f.Spec.Kind] = true, nil
	}
	for name, d := range c.byName {
		if kind, device, _ := strings.Cut(name, "="); counted[d.File] {
			byKind[kind] = append(byKind[kind], device)
		}
	}
	for kind, names := range byKind {
		c.snapshot.Resources = append(c.snapshot.Resources, kind)
		c.units = append(c.units, c.unify(kind, names)...)
	}
	slices.Sort(c.snapshot.Resources)
	slices.SortFunc(c.units, inventory.Compare)
	c.snapshot.Devices = c.units
	c.sortProblems()
	return c
}

func (c *catalog) sortProblems() {
	slices.SortFunc(c.problems, func(a, b inventory.Problem) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Message, b.Message))
	})
	c.snapshot.Problems = c.problems
}

// share finds out how the units are shared, and completes the catalog with it. The name for the whole of a kind is not.
func (c *catalog) share(s sharer) *catalog {
	c.shares = map[string]int{}
	for _, d := range c.units {
		if d.Whole {
			continue
		}
		name := inventory.CDIName(d.Resource, d.Name)
		n, err := s.shares(d.Resource, d.Name, c.byName[name])
		if err != nil {
			c.problems = append(c.problems, inventory.Problem{Resource: d.Resource, Paths: []string{d.Origin}, Message: err.Error()})
		} else if n > 1 {
			c.shares[name] = n
		}
	}
	c.sortProblems()
	return c
}

// notAResource says why a kind is no extended resource's name (Kubernetes: a qualified name with a domain that is not
// kubernetes.io's; CDI allows capitals and underscores in the vendor, Kubernetes does not).
func notAResource(kind string) []string {
	if strings.Contains(kind, "kubernetes.io/") {
		return []string{"the domain kubernetes.io is reserved"}
	}
	// Quotas count a resource under its name with this prefix, which must fit as well.
	return validation.IsQualifiedName("requests." + kind)
}

// unify makes devices of a kind's names. Names of one file with the very same edits, device nodes or network interfaces
// among them, are one piece of hardware (vendors' tools name a device by its index and by its UUID). The name that
// stands for it is the longest, because an index is short and moves, a serial number or UUID is long and stays.
func (c *catalog) unify(kind string, names []string) []inventory.Device {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-cmp.Compare(len(a), len(b)), inventory.CompareNames(a, b))
	})
	var devices []inventory.Device
	known := map[string]int{} // index in devices, by what makes names one device
	for _, name := range names {
		e := c.byName[inventory.CDIName(kind, name)]
		if name != nameOfAll {
			if key := sameHardware(e); key != "" {
				if i, ok := known[key]; ok {
					devices[i].Aliases = append(devices[i].Aliases, name)
					continue
				}
				known[key] = len(devices)
			}
		}
		devices = append(devices, inventory.Device{Resource: kind, Name: name, Origin: e.File.Path, Whole: name == nameOfAll})
	}
	return devices
}

// setWatchError adds to the problems that changes are not seen. Called before the catalog is published.
func (c *catalog) setWatchError(dirs []string, err error) {
	if c.snapshot.Problems = c.problems; err != nil {
		c.snapshot.Problems = append(slices.Clone(c.problems), inventory.Problem{
			Paths: dirs, Message: fmt.Sprintf("changes are not seen before a restart: %v", err)})
	}
}
