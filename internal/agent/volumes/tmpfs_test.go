package volumes

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Volumes in memory are kept from swap where the kernel can do it, and are there where it cannot.
func TestUnswapped(t *testing.T) {
	defer swapped.Store(swapped.Load())
	for _, c := range []struct {
		name  string
		can   bool
		fails error
		want  []string
	}{
		{"a new kernel", true, nil, []string{",noswap", ",noswap"}},
		{"an old kernel is asked once", false, nil, []string{",noswap", "", ""}},
		{"what fails is no old kernel", true, unix.EPERM, []string{",noswap", ",noswap"}},
		{"what both refuse says nothing of the kernel", false, unix.EINVAL, []string{",noswap", "", ",noswap", ""}},
	} {
		swapped.Store(false)
		var asked []string
		for range 2 {
			if err := unswapped(func(options string) error {
				if asked = append(asked, options); options != "" && !c.can {
					return unix.EINVAL
				}
				return c.fails
			}); !errors.Is(err, c.fails) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if !slices.Equal(asked, c.want) {
			t.Errorf("%s: asked %q, want %q", c.name, asked, c.want)
		}
	}
}

// A secret's volume, and an emptyDir in memory, have the option that this kernel has.
func TestTmpfsOptions(t *testing.T) {
	swapped.Store(false)
	m := manager(t, &objects{secret: map[string][]byte{"s": []byte("1")}})
	if err := m.Setup(t.Context(), podWith(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x"}},
		v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})); err != nil {
		t.Fatal(err)
	}
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.podDir("u")))
	if err != nil || len(found) != 2 {
		t.Fatalf("mounted: %v, %v", found, err)
	}
	for _, f := range found {
		if has := strings.Contains(f.VFSOptions, "noswap"); has == swapped.Load() {
			t.Errorf("%s has the options %q; this kernel knows of none: %v", f.Mountpoint, f.VFSOptions, swapped.Load())
		}
	}
}
