package kinds

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/pods"
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

// secrets are one secret, whatever its name.
type secrets struct{}

func (secrets) Get(context.Context, objects.Name) (runtime.Object, error) {
	return &v1.Secret{Data: map[string][]byte{"s": []byte("1")}}, nil
}

// A secret's volume, and an emptyDir in memory, have the option that this kernel has.
func TestTmpfsOptions(t *testing.T) {
	swapped.Store(false)
	all := All(Config{Objects: secrets{}, Allocatable: func() v1.ResourceList { return nil }})
	for name, source := range map[string]v1.VolumeSource{
		"secret":   {Secret: &v1.SecretVolumeSource{SecretName: "x"}},
		"emptyDir": {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
	} {
		v := &Volume{Pod: &v1.Pod{}, Spec: &v1.Volume{VolumeSource: source}, Dir: filepath.Join(t.TempDir(), "v")}
		t.Cleanup(func() {
			if err := Unmount(v.Dir); err != nil {
				t.Error(err)
			}
		})
		if err := all[pods.KindOf(&source)].Setup(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(v.Dir))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: mounted: %v, %v", name, found, err)
		}
		if has := strings.Contains(found[0].VFSOptions, "noswap"); has == swapped.Load() {
			t.Errorf("%s has the options %q; this kernel knows of none: %v", name, found[0].VFSOptions, swapped.Load())
		}
	}
}

// TestTable: each kind that pods may have, and no other, has its row; what lies in the pod's own place is its own.
func TestTable(t *testing.T) {
	all := All(Config{})
	for kind, k := range all {
		if k == all[pods.ClaimVolume] || kind == pods.NFSVolume { // they are there or not: TestClaim, TestNFS
			continue
		}
		v := &Volume{Pod: &v1.Pod{}, Spec: &v1.Volume{VolumeSource: v1.VolumeSource{
			HostPath: &v1.HostPathVolumeSource{Path: "/of/the/host"}, Image: &v1.ImageVolumeSource{Reference: "img"},
		}}, Dir: "/of/the/pod"}
		facts := k.Facts()
		source, err := k.Mount(v)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		inDir := source.Path == v.Dir
		if facts.Own && !inDir || inDir && !facts.Holds || facts.Follows && !facts.Own {
			t.Errorf("%s: %+v, and it lies at %+v", kind, facts, source)
		}
		if (source.Path == "") == (source.Image == "") {
			t.Errorf("%s: containers get %+v", kind, source)
		}
	}
	if all[""] != nil {
		t.Error("there is a kind without a name")
	}
	if len(all) != 10 {
		t.Errorf("%d kinds", len(all))
	}
}
