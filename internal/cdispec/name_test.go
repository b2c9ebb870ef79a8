package cdispec

import (
	"slices"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	long := strings.Repeat("n", 63)
	for name, want := range map[string][2]string{
		"vendor.com/class=device": {"vendor.com/class", "device"}, "vendor.com/3d=x": {"vendor.com/3d", "x"}, "3dfx.com/gpu=0": {"3dfx.com/gpu", "0"},
		"v/c=1:0.0": {"v/c", "1:0.0"}, "v.com/" + long + "=x": {"v.com/" + long, "x"}, "v/c=" + long + long: {"v/c", long + long},
	} {
		if kind, device, err := ParseName(name); err != nil || kind != want[0] || device != want[1] {
			t.Errorf("%s: %q %q %v", name, kind, device, err)
		}
	}
	for name, why := range map[string]string{
		"": "looks like", "gpu0": "looks like", "c=0": "no slash", "v.com/c=": "empty", "v.com/=0": "is empty", "/c=0": "empty label", "v.com/c=a b": "invalid character",
		"v_v.com/c=0": "letters, digits and dashes", "v.com/" + long + "n=0": "64 characters", long + "n.com/c=0": "64 characters", "v.com/c=a,v.com/c=b": "invalid character",
	} {
		if kind, device, err := ParseName(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q %q %v, want %q", name, kind, device, err, why)
		}
	}
}

func TestAnnotated(t *testing.T) {
	var all []string
	for key, name := range Annotated(map[string]string{
		"cdi.k8s.io/z": "v/c=a, v/c=b", "cdi.k8s.io/a": "v/c=z,", "example.com/cdi.k8s.io": "v/c=n", "cdi.k8s.io": "v/c=n", "cdi.k8s.io/": "v/c=a",
	}) {
		all = append(all, key+" "+name)
	}
	if want := []string{"cdi.k8s.io/ v/c=a", "cdi.k8s.io/a v/c=z", "cdi.k8s.io/a ", "cdi.k8s.io/z v/c=a", "cdi.k8s.io/z v/c=b"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	for range Annotated(map[string]string{"cdi.k8s.io/z": "a,b"}) {
		break
	}
}
