package lint

import (
	"cmp"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
)

// form is a list of containerEdits whose entries are structs.
type form[T any] struct {
	name string
	// newer is the field of an entry that only later versions of CDI have; the list's name: all of it.
	newer string
	// valid is an entry with nothing in it but what it must have. It takes the place of what is wrong, so that each field is judged alone.
	valid T
	// as are edits with one entry and nothing else.
	as func(*T) specs.ContainerEdits
}

var (
	deviceNodes = form[specs.DeviceNode]{"deviceNodes", "hostPath", specs.DeviceNode{Path: "/dev/null"},
		func(d *specs.DeviceNode) specs.ContainerEdits {
			return specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{d}}
		}}
	mounts = form[specs.Mount]{"mounts", "type", specs.Mount{HostPath: "/", ContainerPath: "/"},
		func(m *specs.Mount) specs.ContainerEdits { return specs.ContainerEdits{Mounts: []*specs.Mount{m}} }}
	hooks = form[specs.Hook]{"hooks", "", specs.Hook{HookName: "poststop", Path: "/"},
		func(h *specs.Hook) specs.ContainerEdits { return specs.ContainerEdits{Hooks: []*specs.Hook{h}} }}
	netDevices = form[specs.LinuxNetDevice]{"netDevices", "netDevices", specs.LinuxNetDevice{HostInterfaceName: "lo", Name: "lo"},
		func(d *specs.LinuxNetDevice) specs.ContainerEdits {
			return specs.ContainerEdits{NetDevices: []*specs.LinuxNetDevice{d}}
		}}
)

// look judges each entry of a list.
func (f form[T]) look(l *linter, list *yaml.Node, where string) {
	for i, e := range l.list(list, where+", "+f.name) {
		if !l.more() {
			break
		}
		f.entry(l, e, fmt.Sprintf("%s, %s[%d]", where, f.name, i))
	}
}

// entry judges one entry, field by field. whole: nothing is wrong with it.
func (f form[T]) entry(l *linter, n *yaml.Node, in string) (entry T, whole bool) {
	if n = resolve(n); isNull(n) {
		l.add(n, false, in, "it is empty (null)")
		return entry, false
	}
	keys := keysOf(entry)
	all := l.fields(n, in, keys...)
	if all == nil {
		return entry, false
	}
	v, valid := reflect.ValueOf(&entry).Elem(), reflect.ValueOf(f.valid)
	whole = true
	for i, key := range keys {
		if has := all[key]; has.value != nil && !l.decode(has.value, in, v.Field(i).Addr().Interface()) {
			v.Field(i).Set(valid.Field(i))
			whole = false
		}
	}
	wrong := f.wrong(v)
	for _, i := range wrong {
		// What the others have wrong is put right, so that the error is about this one, and names the entry as it is.
		alone := entry
		for _, j := range wrong {
			if j != i {
				reflect.ValueOf(&alone).Elem().Field(j).Set(valid.Field(j))
			}
		}
		edits := f.as(&alone)
		l.fault(all.at(keys[i], n), in, cdispec.CheckEdits(&edits))
		whole = false
	}
	edits := f.as(&entry)
	l.needs(cmp.Or(all[f.newer].value, n), in, f.newer, specs.Spec{ContainerEdits: edits})
	if whole {
		l.drift(n, in, edits)
	}
	return entry, whole
}

// wrong are the fields that are wrong by themselves.
func (f form[T]) wrong(v reflect.Value) (fields []int) {
	for i := range v.NumField() {
		probe := f.valid
		reflect.ValueOf(&probe).Elem().Field(i).Set(v.Field(i))
		edits := f.as(&probe)
		if cdispec.CheckEdits(&edits) != nil {
			fields = append(fields, i)
		}
	}
	return fields
}
