package place

import (
	"path"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	for _, c := range []struct {
		root   string
		below  []string
		path   string
		slice  string
		sliced string // where the slice lies
	}{
		{"/monopod", nil, "/monopod", "monopod.slice", "/monopod.slice"},
		{"monopod/", []string{"pods"}, "/monopod/pods", "monopod-pods.slice", "/monopod.slice/monopod-pods.slice"},
		{"/a/b-c", nil, "/a/b-c", "a-b_c.slice", "/a.slice/a-b_c.slice"},
		{"/a:b@c d", nil, "/a:b@c d", "a_b_c_d.slice", "/a_b_c_d.slice"},
		{"/my-node", []string{"pods", "0f"}, "/my-node/pods/0f", "my_node-pods-0f.slice", "/my_node.slice/my_node-pods.slice/my_node-pods-0f.slice"},
	} {
		if got := Cgroupfs.Name(c.root, c.below...); got != c.path {
			t.Errorf("%s %v: %s, want %s", c.root, c.below, got, c.path)
		}
		got := Systemd.Name(c.root, c.below...)
		if got != c.slice {
			t.Errorf("%s %v: %s, want %s", c.root, c.below, got, c.slice)
		}
		if slice, at, err := Slice(got); err != nil || slice != got || at != c.sliced {
			t.Errorf("%s is %s at %s, %v; want %s", got, slice, at, err, c.sliced)
		}
	}
}

func TestPods(t *testing.T) {
	for _, c := range []struct {
		root   string
		driver Driver
		class  string
		group  string
		pod    string
	}{
		{"/r", Cgroupfs, "Guaranteed", "/r/pods", "/r/pods/pod1-2"},
		{"/r", Cgroupfs, "Burstable", "/r/pods/burstable", "/r/pods/burstable/pod1-2"},
		{"/a/b", Cgroupfs, "BestEffort", "/a/b/pods/besteffort", "/a/b/pods/besteffort/pod1-2"},
		{"/r", Systemd, "Guaranteed", "r-pods.slice", "r-pods-pod1_2.slice"},
		{"/my-node/x", Systemd, "BestEffort", "my_node-x-pods-besteffort.slice", "my_node-x-pods-besteffort-pod1_2.slice"},
		{"/a@b", Systemd, "Burstable", "a_b-pods-burstable.slice", "a_b-pods-burstable-pod1_2.slice"},
	} {
		p := Pods{c.root, c.driver}
		if got := p.Class(c.class); got != c.group {
			t.Errorf("class %s: %s, want %s", c.class, got, c.group)
		}
		got := p.Pod("1-2", c.class)
		if got != c.pod {
			t.Errorf("pod: %s, want %s", got, c.pod)
		}
		if uid, ok := p.UID(path.Base(got)); uid != "1-2" || !ok {
			t.Errorf("the UID in %s: %q, %v", got, uid, ok)
		}
		if uid, ok := p.UID(path.Base(c.group)); ok && c.class != "Guaranteed" {
			t.Errorf("%s is taken for that of a pod %q", c.group, uid)
		}
		// What is stopped with the node's own cgroup are those below it.
		at, err := Path(got)
		if node, nerr := Path(p.Node()); err != nil || nerr != nil || !strings.HasPrefix(at, node+"/") {
			t.Errorf("%s is at %s, the node at %s, %v %v", got, at, node, err, nerr)
		}
	}
}
