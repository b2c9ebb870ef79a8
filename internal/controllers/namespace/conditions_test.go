package namespace

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func TestConditions(t *testing.T) {
	some := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "a.io", Version: "v1"}: errors.New("down")}}
	configMaps := resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps")}
	leases := resource{GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}
	for name, tc := range map[string]struct {
		findings findings
		want     []string
	}{
		"all is well": {findings{}, []string{
			"NamespaceDeletionDiscoveryFailure False ResourcesDiscovered All resources successfully discovered",
			"NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions All legacy kube types successfully parsed",
			"NamespaceDeletionContentFailure False ContentDeleted All content successfully deleted, may be waiting on finalization",
			"NamespaceContentRemaining False ContentRemoved All content successfully removed",
			"NamespaceFinalizersRemaining False ContentHasNoFinalizers All content-preserving finalizers finished",
		}},
		"all is wrong": {findings{
			discovery: some, parsing: errors.New("a/b/c"), content: []error{errors.New("z"), errors.New("y")},
			left: []remainder{{resource: leases, count: 1, finalizers: map[string]int{"x/b": 1, "x/a": 1}}, {resource: configMaps, count: 2, finalizers: map[string]int{"x/a": 2}}},
		}, []string{
			"NamespaceDeletionDiscoveryFailure True DiscoveryFailed Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: a.io/v1: down",
			"NamespaceDeletionGroupVersionParsingFailure True GroupVersionParsingFailed a/b/c",
			"NamespaceDeletionContentFailure True ContentDeletionFailed Failed to delete all resource types, 2 remaining: y, z",
			"NamespaceContentRemaining True SomeResourcesRemain Some resources are remaining: configmaps. has 2 resource instances, leases.coordination.k8s.io has 1 resource instances",
			"NamespaceFinalizersRemaining True SomeFinalizersRemain Some content in the namespace has finalizers remaining: x/a in 3 resource instances, x/b in 1 resource instances",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range tc.findings.conditions() {
				got = append(got, strings.Join([]string{string(c.Type), string(c.Status), c.Reason, c.Message}, " "))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tc.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
		})
	}
}

func TestAConditionKeepsTheTimeOfItsTransition(t *testing.T) {
	begin, later := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	foreign := corev1.NamespaceCondition{Type: "example.com/Mine", Status: corev1.ConditionTrue}
	first, changed := update([]corev1.NamespaceCondition{foreign}, allIsWell(), begin)
	if !changed || len(first) != 6 || first[0] != foreign {
		t.Fatalf("%v, %v", first, changed)
	}
	if _, changed := update(first, allIsWell(), later); changed {
		t.Error("the same conditions are a change")
	}
	found := findings{content: []error{errors.New("x")}}
	second, changed := update(first, found.conditions(), later)
	if !changed {
		t.Error("a failure is no change")
	}
	for _, c := range second[1:] {
		want := begin
		if c.Type == corev1.NamespaceDeletionContentFailure {
			want = later
		}
		if c.LastTransitionTime != want {
			t.Errorf("%s changed at %v, want %v", c.Type, c.LastTransitionTime, want)
		}
	}
}

// TestConditionsHaveABound: users' words do not make a status that is too large to be written.
func TestConditionsHaveABound(t *testing.T) {
	f := findings{}
	for i := range 5000 {
		r := remainder{count: 1, finalizers: map[string]int{}}
		r.Resource, r.Group = fmt.Sprint("things", i), strings.Repeat("g", 200)+".example.com"
		r.finalizers[fmt.Sprint(strings.Repeat("f", 200), ".example.com/", i)] = 1
		f.left = append(f.left, r)
		f.content = append(f.content, errors.New(strings.Repeat("é", 10000)))
	}
	for _, c := range f.conditions() {
		if len(c.Message) > longest+100 || !utf8.ValidString(c.Message) {
			t.Errorf("%s: a message of %d bytes", c.Type, len(c.Message))
		}
		if c.Status == corev1.ConditionTrue && !strings.Contains(c.Message, " more") {
			t.Errorf("%s: %d bytes that do not say that there is more", c.Type, len(c.Message))
		}
	}
}
