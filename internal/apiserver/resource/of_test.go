package resource_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// templates is a resource that has nothing but what every one must say.
func templates() resource.Of[*corev1.PodTemplate, *corev1.PodTemplateList] {
	return resource.Of[*corev1.PodTemplate, *corev1.PodTemplateList]{Plural: "podtemplates", Namespaced: true}
}

func TestSelectableFields(t *testing.T) {
	of := templates()
	of.Fields = func(p *corev1.PodTemplate) fields.Set {
		return fields.Set{"template.spec.nodeName": p.Template.Spec.NodeName}
	}
	set, err := scheme.New(of.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("PodTemplate")
	if l, v, err := set.Scheme.ConvertFieldLabel(kind, "template.spec.nodeName", "n"); err != nil || l != "template.spec.nodeName" || v != "n" {
		t.Errorf("template.spec.nodeName: %q %q %v", l, v, err)
	}
	if _, _, err := set.Scheme.ConvertFieldLabel(kind, "spec.color", "red"); err == nil || !strings.Contains(err.Error(), "template.spec.nodeName") {
		t.Errorf("spec.color: error %v, want one that lists the fields there are", err)
	}
}

// TestDefaultsOfLists: what is read as a list is filled in too.
func TestDefaultsOfLists(t *testing.T) {
	of := templates()
	of.Default = func(p *corev1.PodTemplate) { p.Template.Spec.SchedulerName = "default" }
	set, err := scheme.New(of.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.PodTemplateList{Items: make([]corev1.PodTemplate, 2)}
	set.Scheme.Default(list)
	if list.Items[1].Template.Spec.SchedulerName != "default" {
		t.Errorf("the second of a list: %+v", list.Items[1])
	}
}

func TestNamesAreChecked(t *testing.T) {
	of := templates()
	bad := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "A_b", Namespace: "default"}}
	if errs := of.Check(bad); len(errs) != 1 || errs[0].Field != "metadata.name" {
		t.Errorf("errors %v, want one of metadata.name", errs)
	}
	bad.Name, bad.Namespace = "ab", ""
	if errs := of.Check(bad); len(errs) != 1 || errs[0].Field != "metadata.namespace" {
		t.Errorf("errors %v, want one of metadata.namespace", errs)
	}
}

func TestRights(t *testing.T) {
	of := templates()
	of.ReadBy, of.WrittenBy = resource.Viewer, resource.Editor
	of.Parts = map[string]resource.Part{"try": {Rights: []resource.Right{{Role: resource.Admin, Verbs: []string{"create"}}}}}
	var got []string
	for _, r := range of.Rights() {
		got = append(got, r.Resource+" "+strings.Join(r.Verbs, ","))
	}
	want := []string{"podtemplates get,list,watch", "podtemplates create,delete,deletecollection,patch,update", "podtemplates/try create"}
	if !slices.Equal(got, want) {
		t.Errorf("rights %q, want %q", got, want)
	}
}
