package pods

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A kind has the name that its field has in manifests, and is told by that field alone.
func TestKindOf(t *testing.T) {
	want := map[VolumeKind]bool{EmptyDirVolume: true, HostPathVolume: true, ConfigMapVolume: true, SecretVolume: true, DownwardAPIVolume: true, ProjectedVolume: true,
		ImageVolume: true, NFSVolume: true, ClaimVolume: true, EphemeralVolume: true}
	typ := reflect.TypeFor[v1.VolumeSource]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		var source v1.VolumeSource
		f := reflect.ValueOf(&source).Elem().Field(i)
		f.Set(reflect.New(f.Type().Elem()))
		got := KindOf(&source)
		if want[VolumeKind(name)] != (got == VolumeKind(name)) || !want[VolumeKind(name)] && got != "" {
			t.Errorf("a volume with %s has the kind %q", name, got)
		}
		delete(want, VolumeKind(name))
	}
	if len(want) != 0 {
		t.Errorf("%v are no fields of a volume", want)
	}
	if got := KindOf(&v1.VolumeSource{}); got != "" {
		t.Errorf("a volume of none has the kind %q", got)
	}
}

// Of several the first one counts, in upstream's order; the others are told as well.
func TestKindsOf(t *testing.T) {
	s := v1.VolumeSource{Image: &v1.ImageVolumeSource{}, Secret: &v1.SecretVolumeSource{}, HostPath: &v1.HostPathVolumeSource{}, CSI: &v1.CSIVolumeSource{}}
	if got := slices.Collect(KindsOf(&s)); !slices.Equal(got, []VolumeKind{HostPathVolume, SecretVolume, ImageVolume}) || KindOf(&s) != HostPathVolume {
		t.Errorf("the kinds are %q, and it is %q", got, KindOf(&s))
	}
	for range KindsOf(&s) {
		break // nobody has to take them all
	}
}
