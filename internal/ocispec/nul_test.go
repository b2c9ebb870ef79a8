package ocispec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestNoFieldHoldsNUL puts a NUL into each string of the two configurations, one at a time: newer fields too.
func TestNoFieldHoldsNUL(t *testing.T) {
	in := testInput()
	for root, validate := range map[proto.Message]func() error{
		in.Sandbox:   func() error { return ValidateSandbox(in.Sandbox, in.Host) },
		in.Container: func() error { return Validate(in.Sandbox, in.Container, in.Host) },
	} {
		tried := 0
		eachString(root.ProtoReflect(), "", map[protoreflect.FullName]bool{}, func(field string) {
			tried++
			err := validate()
			if kept := strings.Contains(field, "labels") || strings.Contains(field, "annotations"); kept {
				if found, at := nulIn(root.ProtoReflect()); at >= 0 {
					t.Errorf("%s, which is told back as it came: %s is refused", field, found)
				}
				return
			}
			// What else the value breaks may be found first, and is refused as well.
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("a NUL in %s: %v", field, err)
			}
			if _, at := nulIn(root.ProtoReflect()); at < 0 || !errdefs.IsInvalidArgument(checkNUL(root)) {
				t.Errorf("a NUL in %s is not found", field)
			}
		})
		if tried < 15 {
			t.Errorf("%d strings were tried", tried)
		}
		if err := validate(); err != nil {
			t.Errorf("without any: %v", err)
		}
	}
}

// eachString sets each string below a message to one with a NUL, calls f, and puts back what was there.
func eachString(m protoreflect.Message, at string, above map[protoreflect.FullName]bool, f func(field string)) {
	if above[m.Descriptor().FullName()] {
		return
	}
	above[m.Descriptor().FullName()] = true
	defer delete(above, m.Descriptor().FullName())
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		old, had := proto.Clone(m.Interface()).ProtoReflect().Get(fd), m.Has(fd)
		name := at + "." + string(fd.Name())
		bad := protoreflect.ValueOfString("/a\x00b")
		if fd.Kind() == protoreflect.BytesKind {
			bad = protoreflect.ValueOfBytes([]byte("a\x00b"))
		}
		text := fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind
		switch {
		case fd.IsMap():
			if fd.MapValue().Kind() == protoreflect.StringKind {
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key").MapKey(), bad)
				f(name + "[key]")
				m.Clear(fd)
				m.Mutable(fd).Map().Set(bad.MapKey(), protoreflect.ValueOfString("value"))
				f(name)
			}
		case fd.IsList() && text:
			m.Mutable(fd).List().Append(bad)
			f(name)
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			eachString(m.Mutable(fd).List().AppendMutable().Message(), name, above, f)
		case fd.Kind() == protoreflect.MessageKind && !strings.HasPrefix(string(fd.Name()), "windows"):
			eachString(m.Mutable(fd).Message(), name, above, f)
		case text:
			m.Set(fd, bad)
			f(name)
		}
		if had {
			m.Set(fd, old)
		} else {
			m.Clear(fd)
		}
	}
}

// TestNULOfImages: what an image says is data from outside as well.
func TestNULOfImages(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"Entrypoint": func(in *Input) { in.Image.Entrypoint = []string{"/bin/sh\x00"} },
		"Cmd":        func(in *Input) { in.Image.Cmd = []string{"-c", "true\x00false"} },
		"Env":        func(in *Input) { in.Image.Env = append(in.Image.Env, "A=b\x00LD_PRELOAD=/x") },
		"WorkingDir": func(in *Input) { in.Image.WorkingDir = "/srv\x00/etc" },
	} {
		in := testInput()
		change(&in)
		if _, err := Build(in); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "nginx") {
			t.Errorf("a NUL in an image's %s: %v", name, err)
		}
	}
	in := testInput()
	in.Image.Cmd, in.Container.Args = []string{"a\x00b"}, []string{"c"}
	if _, err := Build(in); err != nil {
		t.Errorf("a NUL in what is replaced: %v", err)
	}
	p, err := Build(testInput())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ExecProcess(p.Process, []string{"sh", "-c\x00"}, false); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "cmd[1]") {
		t.Errorf("a NUL in a command: %v", err)
	}
}

func TestHostnames(t *testing.T) {
	label := strings.Repeat("a", 63)
	for name, ok := range map[string]bool{
		"": true, "web": true, "Web-1": true, "web.ns.svc.example": true, "a_b": true, label: true, "1": true, strings.Repeat("a", 30) + "." + strings.Repeat("b", 33): true,
		label + "a": false, label + ".a": false, strings.Repeat("a.", 33): false, "-a": false, "a-": false, "a-.b": false, "a..b": false, ".a": false, "a.": false, "a b": false,
		"a\n10.0.0.1 bank.example": false, "a/b": false, "../x": false, "ü": false, "a\tb": false, "a#b": false, "a\x00": false,
	} {
		in := testInput()
		in.Sandbox.Hostname = name
		if err := ValidateSandbox(in.Sandbox, in.Host); (err == nil) != ok || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestCapabilitiesAreSaid: a set that is left out of a specification is inherited from whoever starts the process, so none ever is.
func TestCapabilitiesAreSaid(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"no security context": func(in *Input) { in.Container.Linux = nil },
		"no capabilities":     func(*Input) {},
		"all dropped":         func(in *Input) { security(in).Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}} },
		"none on this host":   func(in *Input) { in.Host.Capabilities = nil },
	} {
		in := testInput()
		change(&in)
		spec, err := Build(in)
		if err != nil || spec.Process.Capabilities == nil {
			t.Errorf("%s: %+v, %v", name, spec, err)
			continue
		}
		p := *spec.Process
		p.Capabilities = nil // a bundle of somebody else's
		exec, err := ExecProcess(&p, []string{"true"}, false)
		if err != nil || exec.Capabilities == nil || len(exec.Capabilities.Bounding)+len(exec.Capabilities.Permitted)+len(exec.Capabilities.Ambient) > 0 {
			t.Errorf("%s: a command without a set: %+v, %v", name, exec, err)
		}
	}
}
