package report

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
)

const widget = "example.com/widget"

func status(name string, change ...func(*devices.DeviceStatus)) devices.DeviceStatus {
	s := devices.DeviceStatus{Device: inventory.Device{Resource: widget, Name: name, Origin: "/etc/cdi/w.json"}}
	for _, c := range change {
		c(&s)
	}
	return s
}

func nodes(paths ...string) func(*devices.DeviceStatus) {
	return func(s *devices.DeviceStatus) { s.Nodes = paths }
}

func grantOf(pod, container string, role alloc.Role, names ...string) devices.GrantRecord {
	g := devices.GrantRecord{PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Container: container, Role: role, GrantedAt: time.Unix(1, 0).UTC()}
	for _, n := range names {
		g.Devices = append(g.Devices, devices.GrantedDevice{Resource: widget, Name: n, Source: "cdi"})
	}
	return g
}

// find returns a device by its name.
func find(t *testing.T, l List, name string) Device {
	t.Helper()
	for _, d := range l.Devices {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no %s in %+v", name, l.Devices)
	return Device{}
}

func TestHealth(t *testing.T) {
	of := func(d devices.GrantedDevice) devices.GrantRecord {
		d.Resource = widget
		return devices.GrantRecord{PodName: d.Name, Devices: []devices.GrantedDevice{d}}
	}
	l := New([]devices.DeviceStatus{
		status("fine"),
		status("broken", func(s *devices.DeviceStatus) { s.Unhealthy = "/dev/w does not exist" }),
		status("unfit", func(s *devices.DeviceStatus) { s.Fault = "failed its check" }),
	}, []devices.GrantRecord{grantOf("p", "c", alloc.Main, "gone"), of(devices.GrantedDevice{Name: "foreign", Health: devices.Healthy}),
		of(devices.GrantedDevice{Name: "awaited", Health: devices.Unknown, Awaited: true, Why: "its plugin is away"})}, nil)
	for name, want := range map[string]Device{
		"fine":    {Health: Healthy},
		"foreign": {Health: Healthy},
		"awaited": {Health: Missing, Reason: "its plugin is away"},
		"broken":  {Health: Unhealthy, Reason: "/dev/w does not exist"},
		"unfit":   {Health: Unhealthy, Reason: "failed its check"},
		"gone":    {Health: Missing, Reason: "it was granted, and nothing defines it any more"},
	} {
		if d := find(t, l, name); d.Health != want.Health || d.Reason != want.Reason {
			t.Errorf("%s is %s: %q", name, d.Health, d.Reason)
		}
	}
	if d := find(t, l, "gone"); d.Source != "cdi" || len(d.Holders) != 1 || d.Free() {
		t.Errorf("what is missing: %+v", d)
	}
}

func TestHolders(t *testing.T) {
	l := New([]devices.DeviceStatus{status("w0", func(s *devices.DeviceStatus) { s.Aliases = []string{"0"} }), status("w1")}, []devices.GrantRecord{
		grantOf("p", "aaa", alloc.Init, "0"), grantOf("p", "bbb", alloc.Sidecar, "w0"), grantOf("p", "ccc", alloc.Main, "w0"), grantOf("a", "x", alloc.Main, "0"),
	}, nil)
	var got []string
	for _, h := range find(t, l, "w0").Holders {
		got = append(got, h.String())
	}
	if want := []string{"default/a/x", "default/p/ccc", "default/p/bbb", "default/p/aaa"}; !slices.Equal(got, want) {
		t.Errorf("held by %q", got)
	}
	if len(l.Devices) != 2 || !find(t, l, "w1").Free() {
		t.Errorf("%+v", l.Devices)
	}
}

// A plugin's devices have the nodes that its answers gave: they exclude what other resources have of the same hardware. What is missing is told with where it was.
func TestWhatAPluginsAnswerHasGiven(t *testing.T) {
	other := func(s *devices.DeviceStatus) {
		s.Resource, s.Origin = "example.com/plugged", "/var/lib/kubelet/device-plugins/p.sock"
	}
	fuse := func(s *devices.DeviceStatus) { s.SharedNodes = []string{"/dev/fuse"} }
	answered := devices.GrantRecord{PodName: "p", Devices: []devices.GrantedDevice{
		{Resource: "example.com/plugged", Name: "p1", Health: devices.Healthy, Given: []string{"/dev/a", "/dev/b"}, Shared: []string{"/dev/ctl"}},
		{Resource: "example.com/plugged", Name: "p9", Health: devices.Unknown, Why: "the device is not there any more: its plugin is gone", Origin: "/run/p.sock", Source: "device-plugin"}}}
	l := New([]devices.DeviceStatus{status("0", nodes("/dev/a")), status("1", nodes("/dev/c")), status("f", fuse), status("p0", other), status("p1", other)}, []devices.GrantRecord{answered}, nil)
	if d := find(t, l, "0"); d.Free() || !slices.Equal(d.ExcludedBy, []string{"example.com/plugged=p1"}) {
		t.Errorf("hardware that is given under another name: %+v", d)
	}
	if !find(t, l, "1").Free() || !find(t, l, "p0").Free() {
		t.Errorf("what is free: %+v", l.Devices)
	}
	if d := find(t, l, "p1"); !slices.Equal(d.Nodes, []string{"/dev/a", "/dev/b"}) || !slices.Equal(d.SharedNodes, []string{"/dev/ctl"}) {
		t.Errorf("the plugin's device: %+v", d)
	}
	if d := find(t, l, "f"); !slices.Equal(d.SharedNodes, []string{"/dev/fuse"}) || len(d.Nodes) != 0 {
		t.Errorf("a device of a shared node: %+v", d)
	}
	if d := find(t, l, "p9"); d.Health != Missing || d.Source != "/run/p.sock" || d.Reason != "it was granted, and nothing defines it any more: its plugin is gone" {
		t.Errorf("a missing one: %+v", d)
	}
}

func TestWhatIsExcluded(t *testing.T) {
	whole := func(s *devices.DeviceStatus) { s.Whole = true }
	l := New([]devices.DeviceStatus{
		status("all", whole, nodes("/dev/a", "/dev/b")), status("card", nodes("/dev/a", "/dev/ctl")), status("other", nodes("/dev/b", "/dev/ctl")), status("part", nodes("/dev/a")),
	}, []devices.GrantRecord{grantOf("p", "c", alloc.Main, "part")}, nil)
	for name, want := range map[string][]string{"all": nil, "card": {widget + "=part"}, "other": nil, "part": nil} {
		if d := find(t, l, name); !slices.Equal(d.ExcludedBy, want) {
			t.Errorf("%s is excluded by %q, want %q", name, d.ExcludedBy, want)
		}
	}
	if d := find(t, l, "all"); !d.Whole || d.Free() {
		t.Errorf("what stands for all: %+v", d)
	}
	if d := find(t, l, "other"); !d.Free() {
		t.Errorf("a sibling: %+v", d)
	}
	missing := devices.GrantRecord{PodName: "p", Devices: []devices.GrantedDevice{{Resource: widget, Name: "by-uuid", Health: devices.Unknown, Nodes: []string{"/dev/a"}}}}
	again := New([]devices.DeviceStatus{status("0", nodes("/dev/a")), status("1", nodes("/dev/b"))}, []devices.GrantRecord{missing}, nil)
	if d := find(t, again, "0"); d.Free() || !slices.Equal(d.ExcludedBy, []string{widget + "=by-uuid"}) || !find(t, again, "1").Free() {
		t.Errorf("what somebody has under a name that is gone: %+v", d)
	}
	alone := New([]devices.DeviceStatus{status("all", whole)}, nil, nil)
	if d := find(t, alone, "all"); d.Whole || !d.Free() {
		t.Errorf("what is all there is, is a unit: %+v", d)
	}
}

func TestOrderAndResource(t *testing.T) {
	other := status("x")
	other.Resource = "a.com/b"
	l := New([]devices.DeviceStatus{other, status("w2"), status("w10")}, []devices.GrantRecord{grantOf("p", "c", alloc.Main, "w3")},
		[]devices.Problem{{Resource: widget, Message: "one"}, {Resource: "a.com/b", Message: "two"}, {Paths: []string{"/etc/cdi/x", "/etc/cdi/y"}, Message: "three"}})
	var got []string
	for _, d := range l.Devices {
		got = append(got, d.Name)
	}
	if want := []string{"x", "w2", "w3", "w10"}; !slices.Equal(got, want) {
		t.Errorf("the order is %q", got)
	}
	of := l.Of(widget)
	if len(of.Devices) != 3 || len(of.Problems) != 2 || of.Problems[1].String() != "/etc/cdi/x, /etc/cdi/y: three" || of.Problems[0].String() != "one" {
		t.Errorf("of one resource: %+v", of)
	}
}

func TestDiff(t *testing.T) {
	list := func(problems []Problem, all ...Device) List { return List{Devices: all, Problems: problems} }
	dev := func(name string, h Health) Device {
		return Device{Resource: widget, Name: name, Health: h, Holders: []Holder{}}
	}
	one, two := []Problem{{Message: "one"}}, []Problem{{Message: "two"}}
	for name, c := range map[string]struct {
		last, next List
		want       string
	}{
		"nothing":  {list(one, dev("a", Healthy)), list(one, dev("a", Healthy)), ""},
		"come":     {list(nil), list(nil, dev("a", Healthy)), "added a"},
		"gone":     {list(nil, dev("a", Healthy)), list(nil), "removed a"},
		"changed":  {list(nil, dev("a", Healthy)), list(nil, dev("a", Unhealthy)), "changed a"},
		"order":    {list(one, dev("a", Healthy), dev("b", Healthy)), list(two, dev("b", Missing), dev("c", Healthy)), "removed a, changed b, added c, solved one, problem two"},
		"replaced": {list(nil, dev("a", Healthy)), list(nil, Device{Resource: "x.com/y", Name: "a", Health: Healthy}), "removed a, added a"},
	} {
		var got []string
		for _, e := range Diff(c.last, c.next) {
			var what string
			if e.Device != nil {
				what = e.Device.Name
			} else {
				what = e.Problem.Message
			}
			got = append(got, string(e.Type)+" "+what)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
	begin := Begin(list(one, dev("a", Healthy)))
	if len(begin) != 3 || begin[0].Type != Listed || begin[1].Type != Arisen || begin[2].Type != Synced {
		t.Errorf("a watch begins with %+v", begin)
	}
}

// What is told is read by programs: a name that changes is a change of the version.
func TestTheFormat(t *testing.T) {
	const golden = `{"devices":[{"resource":"a.com/b","name":"n","aliases":["m"],"whole":true,"health":"Unhealthy","reason":"r","numa":[0,1],"source":"/etc/cdi/x.json",` +
		`"nodes":["/dev/x"],"holders":[{"namespace":"d","pod":"p","podUID":"u","container":"c","role":"main","grantedAt":"1970-01-01T00:00:01Z"}],"excludedBy":["a.com/b=o"]}],` +
		`"problems":[{"resource":"a.com/b","paths":["/etc/cdi"],"message":"m"}]}`
	want := List{Devices: []Device{{Resource: "a.com/b", Name: "n", Aliases: []string{"m"}, Whole: true, Health: Unhealthy, Reason: "r", NUMA: []int{0, 1}, Source: "/etc/cdi/x.json",
		Nodes: []string{"/dev/x"}, Holders: []Holder{{"d", "p", "u", "c", "main", time.Unix(1, 0).UTC()}}, ExcludedBy: []string{"a.com/b=o"}}},
		Problems: []Problem{{Resource: "a.com/b", Paths: []string{"/etc/cdi"}, Message: "m"}}}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got List
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

// Who has a share leaves the others free; who has it alone leaves none.
func TestShares(t *testing.T) {
	of := func(device string) func(*devices.DeviceStatus) {
		return func(s *devices.DeviceStatus) { s.ShareOf = device }
	}
	shared := func(g devices.GrantRecord, device string) devices.GrantRecord {
		g.Devices[0].ShareOf = device
		return g
	}
	all := []devices.DeviceStatus{status("a", of("a")), status("a#2", of("a")), status("b", of("b"), nodes("/dev/b")), status("b#2", of("b"), nodes("/dev/b")), status("c", nodes("/dev/b"))}
	l := New(all, []devices.GrantRecord{shared(grantOf("p", "c", alloc.Main, "b"), "b"), grantOf("q", "c", alloc.Main, "a")}, nil)
	for name, want := range map[string]string{"a": "held", "a#2": "excluded by [example.com/widget=a]", "b": "held", "b#2": "free", "c": "excluded by [example.com/widget=b]"} {
		d := find(t, l, name)
		got := "held"
		switch {
		case d.Free():
			got = "free"
		case len(d.ExcludedBy) > 0:
			got = "excluded by [" + strings.Join(d.ExcludedBy, " ") + "]"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	// It is shared less than it was: who has a share that is one too many is a holder of the device.
	l = New([]devices.DeviceStatus{status("a")}, []devices.GrantRecord{shared(grantOf("p", "c", alloc.Main, "a"), "a"), shared(grantOf("q", "c", alloc.Main, "a#2"), "a")}, nil)
	if d := find(t, l, "a"); len(d.Holders) != 2 || len(l.Devices) != 1 {
		t.Errorf("%+v", l.Devices)
	}
}
