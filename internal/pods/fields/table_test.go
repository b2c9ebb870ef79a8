package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/kit/apifields"
)

// TestEveryFieldHasARow holds the table against the Go types, down from PodSpec through all that some role honours. When it fails after an update
// of k8s.io/api, decide about the new field, and give it a row.
func TestEveryFieldHasARow(t *testing.T) {
	for _, hole := range apifields.Holes([]apifields.Table{column(Server), column(Agent)}, reflect.TypeFor[v1.PodSpec]()) {
		t.Error(hole)
	}
	for typ, rows := range table {
		for name, row := range rows {
			if row[Server].Kind == leaves {
				t.Errorf("%s.%s: the API server leaves a field to nobody", typ, name)
			}
		}
	}
}

// TestEveryRowIsApplied sets each field of PodSpec, Container, Lifecycle and VolumeSource, one at a time, for each role.
func TestEveryRowIsApplied(t *testing.T) {
	try := func(spec *v1.PodSpec, parent reflect.Value, prefix string) {
		for name, row := range table[parent.Type()] {
			f, _ := parent.Type().FieldByName(name)
			if f.Anonymous {
				continue
			}
			value, before := something(f.Type), reflect.New(f.Type).Elem()
			before.Set(parent.FieldByName(name))
			for role := range Role(roles) {
				verdict := row[role]
				set := value
				if verdict.Kind == refuses && verdict.Accepts != nil && verdict.Accepts(value) {
					set = reflect.New(f.Type.Elem()) // a boolean of which true is the harmless value
				}
				parent.FieldByName(name).Set(set)
				refusals := Refused(role, spec, field.NewPath("spec"))
				parent.FieldByName(name).Set(before)
				jsonName, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				path := prefix + jsonName
				own := slices.DeleteFunc(slices.Clone(refusals), func(r Refusal) bool { return r.Path.String() != path })
				if want := verdict.Kind == refuses; (len(own) == 1) != want || want && len(refusals) != 1 {
					t.Errorf("role %d, %s: %v, want it refused: %t", role, path, refusals, want)
				}
			}
		}
	}
	spec := &v1.PodSpec{}
	try(spec, reflect.ValueOf(spec).Elem(), "spec.")
	spec = &v1.PodSpec{InitContainers: []v1.Container{{}, {Lifecycle: &v1.Lifecycle{}}}}
	try(spec, reflect.ValueOf(spec.InitContainers[1].Lifecycle).Elem(), "spec.initContainers[1].lifecycle.")
	try(spec, reflect.ValueOf(&spec.InitContainers[0]).Elem(), "spec.initContainers[0].")
	spec = &v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}}
	try(spec, reflect.ValueOf(&spec.Volumes[0].VolumeSource).Elem(), "spec.volumes[0].")
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

// refusedBy writes what a role refuses of a specification.
func refusedBy(role Role, spec *v1.PodSpec) string {
	var all []string
	for _, r := range Refused(role, spec, field.NewPath("spec")) {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

func TestValuesThatAskForNothing(t *testing.T) {
	no, yes, zero, none, empty := false, true, int32(0), v1.MountPropagationNone, ""
	preempt := v1.PreemptLowerPriority
	spec := &v1.PodSpec{
		ServiceAccountName: "default", DeprecatedServiceAccount: "default", ShareProcessNamespace: &no, HostUsers: &yes, RuntimeClassName: &empty,
		Priority: &zero, PreemptionPolicy: &preempt, OS: &v1.PodOS{Name: v1.Linux}, Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}, SetHostnameAsFQDN: &no,
		ImagePullSecrets: []v1.LocalObjectReference{}, Overhead: v1.ResourceList{},
		Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{MountPropagation: &none}}}},
		Volumes:    []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(0, resource.BinarySI)}}}},
	}
	for role := range Role(roles) {
		if got := refusedBy(role, spec); got != "" {
			t.Errorf("role %d refuses %s", role, got)
		}
	}
	for role := range Role(roles) {
		if got := refusedBy(role, &v1.PodSpec{OS: &v1.PodOS{Name: v1.Windows}}); got != "spec.os.name: windows" {
			t.Errorf("role %d: os: %q", role, got)
		}
	}
}

// What the agent's version of the API does not know is not decoded, so that nothing is there.
func TestKindsOfVolumesThatAreNewer(t *testing.T) {
	spec := &v1.PodSpec{Volumes: []v1.Volume{{Name: "new"}, {Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: make([]v1.VolumeProjection, 1)}}}}}
	want := "spec.volumes[0] (unless its kind is one that this version knows), spec.volumes[1].projected.sources[0] (unless its kind is one that this version knows)"
	if got := refusedBy(Agent, spec); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What only a scheduler or an admission reads is no agent's to refuse, and an agent does what the server does not let in yet.
func TestTheColumnsDiffer(t *testing.T) {
	seven := int32(7)
	spec := &v1.PodSpec{
		Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: make([]v1.WeightedPodAffinityTerm, 1)}}, PriorityClassName: "high", Priority: &seven, ServiceAccountName: "builder", TopologySpreadConstraints: make([]v1.TopologySpreadConstraint, 1),
		SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: new("group")},
		Overhead:        v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		Volumes:         []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Mode: new(int32(0o700))}}}},
	}
	if got, want := refusedBy(Agent, spec), "spec.volumes[0].emptyDir.mode"; got != want {
		t.Errorf("the agent: %s, want %s", got, want)
	}
	got := strings.Split(refusedBy(Server, spec), ", ")
	for _, want := range []string{
		"spec.schedulingGroup",
		"spec.volumes[0].emptyDir.mode",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("the API server does not refuse %s: %s", want, fmt.Sprint(got))
		}
	}
	if len(got) != 2 {
		t.Errorf("the API server refuses %d fields: %s", len(got), fmt.Sprint(got))
	}
}

func BenchmarkRefused(b *testing.B) {
	limit := resource.MustParse("1Mi")
	spec := &v1.PodSpec{
		RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSClusterFirst, SecurityContext: &v1.PodSecurityContext{},
		Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: limit}}}},
		Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
	}
	for b.Loop() {
		Refused(Server, spec, field.NewPath("spec"))
	}
}
