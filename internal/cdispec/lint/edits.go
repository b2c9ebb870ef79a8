package lint

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
)

func checkDeviceName(name string) error { return parser.ValidateDeviceName(name) }

// othersRefuse says why the CDI library, which other runtimes use, refuses a kind that the specification allows.
func othersRefuse(kind string) string {
	vendor, class := parser.ParseQualifier(kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return fmt.Sprintf("kind %q: other runtimes refuse the file: %s", kind, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return ""
}

// keysOf are the names that a struct of the specification has in files.
func keysOf(v any) (keys []string) {
	for t, i := reflect.TypeOf(v), 0; i < t.NumField(); i++ {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		keys = append(keys, name)
	}
	return keys
}

// edits looks at containerEdits, piece by piece: each as if it were all there is, so that one fault does not hide the next. It says whether there
// are none.
func (l *linter) edits(n *yaml.Node, where string) (empty bool) {
	if isNull(n) {
		return true
	}
	all := l.fields(n, where, keysOf(specs.ContainerEdits{})...)
	for i, e := range l.list(all["env"].value, where+", env") {
		var text string
		if !l.more() {
			break
		}
		if in := fmt.Sprintf("%s, env[%d]", where, i); l.decode(e, in, &text) {
			l.piece(e, in, "", specs.ContainerEdits{Env: []string{text}})
		}
	}
	deviceNodes.look(l, all["deviceNodes"].value, where)
	mounts.look(l, all["mounts"].value, where)
	hooks.look(l, all["hooks"].value, where)
	l.netDevices(all["netDevices"].value, where)
	l.intelRdt(all["intelRdt"], where)
	for i, e := range l.list(all["additionalGids"].value, where+", additionalGids") {
		var gid uint32
		if !l.more() {
			break
		}
		if in := fmt.Sprintf("%s, additionalGids[%d]", where, i); l.decode(e, in, &gid) {
			l.piece(e, in, "additionalGids", specs.ContainerEdits{AdditionalGIDs: []uint32{gid}})
		}
	}
	return all != nil && len(all) == 0
}

// netDevices may not have one interface, or one name, twice.
func (l *linter) netDevices(list *yaml.Node, where string) {
	hosts, names := map[string]int{}, map[string]int{}
	for i, e := range l.list(list, where+", netDevices") {
		in := fmt.Sprintf("%s, netDevices[%d]", where, i)
		if !l.more() {
			break
		}
		d, whole := netDevices.entry(l, e, in)
		if !whole {
			continue
		}
		at := resolve(e)
		for _, of := range []struct {
			what, value string
			seen        map[string]int
		}{{"hostInterfaceName", d.HostInterfaceName, hosts}, {"name", d.Name, names}} {
			if line, twice := of.seen[of.value]; twice {
				l.add(at, false, in, fmt.Sprintf("%s %q is there twice: first in line %d", of.what, of.value, line))
			} else {
				of.seen[of.value] = at.Line
			}
		}
	}
}

// Fields of intelRdt that versions 0.7 to 1.0 had, and the library has forgotten.
var forgotten = []string{"enableCMT", "enableMBM"}

func (l *linter) intelRdt(f field, where string) {
	if isNull(f.value) {
		return
	}
	in := where + ", intelRdt"
	all := l.fields(f.value, in, append(keysOf(specs.IntelRdt{}), forgotten...)...)
	if all == nil {
		return
	}
	for _, name := range forgotten {
		var flag bool
		if has := all[name]; has.value != nil && l.decode(has.value, in, &flag) {
			l.add(has.key, true, in, name+" is of CDI 0.7 to 1.0: runtimes with a newer library refuse the file; enableMonitoring (1.1) is what it is called now")
		}
	}
	var rdt specs.IntelRdt
	if l.decode(f.value, in, &rdt) {
		l.piece(f.key, in, "intelRdt", specs.ContainerEdits{IntelRdt: &rdt})
	}
}

// piece checks one piece of containerEdits by the node's own rules, by the file's version, and against the host. what is the field that later
// versions have.
func (l *linter) piece(at *yaml.Node, where, what string, e specs.ContainerEdits) {
	if err := cdispec.CheckEdits(&e); err != nil {
		l.fault(at, where, err)
		return
	}
	l.needs(at, where, what, specs.Spec{ContainerEdits: e})
	l.drift(at, where, e)
}

// drift warns of what is not on this host.
func (l *linter) drift(at *yaml.Node, where string, e specs.ContainerEdits) {
	d := &cdispec.Device{File: &cdispec.File{Spec: &specs.Spec{}}, Edits: &e}
	drift := (*cdispec.DriftError)(nil)
	if errors.As(l.host.Check(d, false), &drift) {
		for _, f := range drift.Faults {
			l.add(at, true, where, f.Path+" "+f.Detail+" (on this host)")
		}
	}
}
