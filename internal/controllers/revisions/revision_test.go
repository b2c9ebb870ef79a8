package revisions

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// template is one with an image and a label.
func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}, NodeSelector: map[string]string{"of": image},
		},
	}
}

func owner(of *corev1.PodTemplateSpec, collisions *int32) Owner {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "set", UID: "u", Annotations: map[string]string{"kubernetes.io/change-cause": "why", corev1.LastAppliedConfigAnnotation: "{}"},
		},
		Spec: appsv1.DaemonSetSpec{Template: *of},
	}
	return Owner{Owner: set, Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Template: of, Collisions: collisions, HashLabel: "hash"}
}

// made is the revision of an image as it was made with a number.
func made(t *testing.T, image string, number int64) *appsv1.ControllerRevision {
	t.Helper()
	plan, err := Decide(owner(template(image), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan.Current.Revision = number
	return plan.Current
}

func TestDecide(t *testing.T) {
	odd := made(t, "a", 2)
	odd.Name = "odd"
	odd.Data.Raw = []byte(strings.Replace(string(odd.Data.Raw), `"spec"`, `"unknown":1, "spec"`, 1))
	broken := made(t, "a", 7)
	broken.Name, broken.Data.Raw = "broken", []byte("[]")
	a, b := made(t, "a", 1), made(t, "b", 2)
	last, also := made(t, "b", math.MaxInt64), made(t, "a", math.MaxInt64) // as a user may write it
	for _, c := range []struct {
		name  string
		image string
		has   []*appsv1.ControllerRevision
		want  string
	}{
		{"the first one", "a", nil, "create a 1; others"},
		{"as it is", "b", []*appsv1.ControllerRevision{b, a}, "b 2; others a"},
		{"a new template", "c", []*appsv1.ControllerRevision{b, a}, "create c 3; others a b"},
		{"back to an old one", "a", []*appsv1.ControllerRevision{a, b}, "renumber a 3; others b"},
		{"of two of one template the newer one", "a", []*appsv1.ControllerRevision{a, odd}, "odd 2; others a"},
		{"two of one number", "b", []*appsv1.ControllerRevision{b, odd}, "renumber b 3; others odd"},
		{"a new template after the last number", "c", []*appsv1.ControllerRevision{last, a}, "create c 9223372036854775807; others a b"},
		{"back to an old one after the last number", "a", []*appsv1.ControllerRevision{last, a}, "renumber a 9223372036854775807; others b"},
		{"two of the last number", "a", []*appsv1.ControllerRevision{last, also}, "a 9223372036854775807; others b"},
		{"one that cannot be read is another one", "a", []*appsv1.ControllerRevision{a, broken}, "renumber a 8; others broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := fmt.Sprint(c.has)
			plan, err := Decide(owner(template(c.image), nil), c.has)
			if err != nil {
				t.Fatal(err)
			}
			name := func(r *appsv1.ControllerRevision) string {
				for _, image := range []string{"a", "b", "c"} {
					if r.Name == made(t, image, 1).Name {
						return image
					}
				}
				return r.Name
			}
			got := fmt.Sprintf("%s %d; others", name(plan.Current), plan.Current.Revision)
			switch {
			case plan.Create:
				got = "create " + got
			case plan.Renumber:
				got = "renumber " + got
			}
			for _, r := range plan.Others {
				got += " " + name(r)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if fmt.Sprint(c.has) != before {
				t.Error("what it was given has changed")
			}
		})
	}
}

// TestRevision: a revision is the patch that puts its template back whole, has the labels by which it is claimed, and a name of its template.
func TestRevision(t *testing.T) {
	of := owner(template("a"), nil)
	plan, err := Decide(of, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Current
	if r.Labels["app"] != "a" || r.Name != "set-"+r.Labels["hash"] || len(r.Annotations) != 1 || r.Annotations["kubernetes.io/change-cause"] != "why" {
		t.Errorf("name %s, labels %v, annotations %v", r.Name, r.Labels, r.Annotations)
	}
	if !metav1.IsControlledBy(r, of) {
		t.Errorf("its owner is %v", r.OwnerReferences)
	}
	other := template("b")
	other.Annotations = map[string]string{"of": "b"}
	other.Spec.Containers[0].Name = "other"
	set, err := json.Marshal(owner(other, nil).Owner)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(set, r.Data.Raw, &appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	var back appsv1.DaemonSet
	if err := json.Unmarshal(patched, &back); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(&back.Spec.Template, of.Template) || !Same(r, &back.Spec.Template) {
		t.Errorf("it puts back %+v", back.Spec.Template)
	}
	none, once := int32(0), int32(1)
	for _, c := range []struct {
		collisions *int32
		same       bool
	}{{&none, true}, {&once, false}} {
		again, err := Decide(owner(template("a"), c.collisions), nil)
		if err != nil {
			t.Fatal(err)
		}
		if (again.Current.Name == r.Name) != c.same {
			t.Errorf("%d collisions: %s, without %s", *c.collisions, again.Current.Name, r.Name)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add([]byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"c"}]}}}}`))
	f.Add([]byte(`{"spec":{"template":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &appsv1.ControllerRevision{}
		r.Data.Raw = data
		if got, err := Template(r); (got == nil) != (err != nil) {
			t.Errorf("%v, %v", got, err)
		}
	})
}
