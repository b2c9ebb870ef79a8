package ocispec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestCgroupParent(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"/kubepods/burstable/pod1":   "/kubepods/burstable/pod1",
		"/kubepods/pod1/":            "/kubepods/pod1",
		"/a.slice/a-b.slice":         "/a.slice/a-b.slice",
		"/a-b.slice":                 "/a-b.slice", // a path is what it says
		"a.slice":                    "/a.slice",
		"kubepods-besteffort.slice":  "/kubepods.slice/kubepods-besteffort.slice",
		"a-b-c.slice":                "/a.slice/a-b.slice/a-b-c.slice",
		`kubepods-pod1_2\x2d3.slice`: `/kubepods.slice/kubepods-pod1_2\x2d3.slice`,
	} {
		if got, err := CgroupParent(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"/", "//", "a", "a/b", "a/b.slice", "/a/../b", "/a//b", ".slice", "-.slice", "-a.slice", "a-.slice", "a--b.slice", "..", "/a\n", "a.scope"} {
		if got, err := CgroupParent(bad); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "cgroup_parent") {
			t.Errorf("%q: %q, %v; want InvalidArgument that names the field", bad, got, err)
		}
	}
}

func TestSlice(t *testing.T) {
	for in, want := range map[string][2]string{
		"":                          {"", ""},
		"a.slice":                   {"a.slice", "/a.slice"},
		"kubepods-besteffort.slice": {"kubepods-besteffort.slice", "/kubepods.slice/kubepods-besteffort.slice"},
		"/a.slice/a-b.slice":        {"a-b.slice", "/a.slice/a-b.slice"},
	} {
		if name, cgroup, err := Slice(in); err != nil || name != want[0] || cgroup != want[1] {
			t.Errorf("%q: %q, %q, %v; want %q", in, name, cgroup, err, want)
		}
	}
	for _, bad := range []string{"/", "/kubepods/pod1", "/a-b.slice", "/x/a.slice", "a", "-.slice", "a:b.slice", "/a.slice/a-b.scope"} {
		if name, _, err := Slice(bad); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "cgroup_parent") {
			t.Errorf("%q: %q, %v; want InvalidArgument that names the field", bad, name, err)
		}
	}
}
