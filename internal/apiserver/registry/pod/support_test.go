package pod

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestEveryFieldIsHonouredOrRefused holds the list of support.go against the Go types, down from PodSpec through all
// that is honoured. When it fails after an update of k8s.io/api, decide about the new field, and say so in support.go.
func TestEveryFieldIsHonouredOrRefused(t *testing.T) {
	rules := newSupportRules()
	visited := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.PkgPath() != "k8s.io/api/core/v1" || visited[typ] {
			return
		}
		visited[typ] = true
		r, ok := rules[typ]
		if !ok {
			t.Errorf("%s is part of a pod's spec and has no rules", typ)
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			_, refused := r.refused[f.Name]
			honoured := slices.Contains(r.honoured, f.Name)
			switch {
			case refused && honoured:
				t.Errorf("%s.%s is both honoured and refused", typ, f.Name)
			case !refused && !honoured:
				t.Errorf("%s.%s is neither honoured nor refused", typ, f.Name)
			case honoured:
				visit(f.Type)
			}
		}
		for _, name := range r.honoured {
			if _, ok := typ.FieldByName(name); !ok {
				t.Errorf("%s has no field %s", typ, name)
			}
		}
		for name := range r.refused {
			if _, ok := typ.FieldByName(name); !ok {
				t.Errorf("%s has no field %s", typ, name)
			}
		}
	}
	visit(reflect.TypeFor[corev1.PodSpec]())
	for typ := range rules {
		if !visited[typ] {
			t.Errorf("the rules of %s are never used", typ)
		}
	}
}

// TestEveryRefusedFieldIsRefusedByName sets each refused field of PodSpec and Container, one at a time.
func TestEveryRefusedFieldIsRefusedByName(t *testing.T) {
	rules := newSupportRules()
	try := func(spec *corev1.PodSpec, parent reflect.Value, name, prefix string) {
		f, _ := parent.Type().FieldByName(name)
		value := something(f.Type)
		if accepts := rules[parent.Type()].refused[name]; accepts != nil && accepts(value) {
			value = reflect.New(f.Type.Elem()) // a boolean of which true is the harmless value
		}
		parent.FieldByName(name).Set(value)
		jsonName, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		errs := rules.check(reflect.ValueOf(spec), field.NewPath("spec"))
		want := prefix + jsonName + ": Forbidden: " + notSupported
		if len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%s: errors %v, want %q", name, errs, want)
		}
	}
	for name := range rules[reflect.TypeFor[corev1.PodSpec]()].refused {
		var spec corev1.PodSpec
		try(&spec, reflect.ValueOf(&spec).Elem(), name, "spec.")
	}
	for name := range rules[reflect.TypeFor[corev1.Container]()].refused {
		spec := corev1.PodSpec{InitContainers: []corev1.Container{{}, {}}}
		try(&spec, reflect.ValueOf(&spec.InitContainers[1]).Elem(), name, "spec.initContainers[1].")
	}
	for name := range rules[reflect.TypeFor[corev1.VolumeSource]()].refused {
		spec := corev1.PodSpec{Volumes: []corev1.Volume{{}}}
		try(&spec, reflect.ValueOf(&spec.Volumes[0].VolumeSource).Elem(), name, "spec.volumes[0].")
	}
}

// something makes a value of a type that is not its zero value.
func something(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Pointer:
		p := reflect.New(typ.Elem())
		p.Elem().Set(something(typ.Elem()))
		v.Set(p)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(typ))
		v.SetMapIndex(reflect.New(typ.Key()).Elem(), reflect.New(typ.Elem()).Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("something")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Struct:
		if typ.NumField() > 0 && v.Field(0).CanSet() {
			v.Field(0).Set(something(typ.Field(0).Type))
		}
	}
	return v
}

func TestHarmlessValuesAreAccepted(t *testing.T) {
	no, yes, zero, none := false, true, int32(0), corev1.MountPropagationNone
	preempt := corev1.PreemptLowerPriority
	spec := &corev1.PodSpec{
		ServiceAccountName: "default", DeprecatedServiceAccount: "default", ShareProcessNamespace: &no, HostUsers: &yes,
		Priority: &zero, PreemptionPolicy: &preempt, OS: &corev1.PodOS{Name: corev1.Linux}, Affinity: &corev1.Affinity{},
		ImagePullSecrets: []corev1.LocalObjectReference{}, Overhead: corev1.ResourceList{},
		Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{MountPropagation: &none}}}},
	}
	if errs := newSupportRules().check(reflect.ValueOf(spec), field.NewPath("spec")); len(errs) > 0 {
		t.Error(errs)
	}
	hostUsers := &corev1.PodSpec{HostUsers: &no}
	if errs := newSupportRules().check(reflect.ValueOf(hostUsers), field.NewPath("spec")); len(errs) != 1 {
		t.Errorf("hostUsers: false: errors %v, want one", errs)
	}
}

func BenchmarkSupportCheck(b *testing.B) {
	rules := newSupportRules()
	pod := validPod()
	for b.Loop() {
		rules.check(reflect.ValueOf(&pod.Spec), field.NewPath("spec"))
	}
}
