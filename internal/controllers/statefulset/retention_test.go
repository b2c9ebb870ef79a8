package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType

// retention is what becomes of claims when the set is deleted, and when it is scaled down.
func retention(deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: deleted, WhenScaled: scaled}
	}
}

// claimed is the claim of a member with owners in short: set, pod, former-set, former-pod, other (a controller), friend (none); with a "~" the owner is no controller.
func claimed(place, owners string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "data-s-" + place}}
	for word := range strings.FieldsSeq(owners) {
		name, plain := strings.CutPrefix(word, "~")
		ref := map[string]metav1.OwnerReference{
			"set":        {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "s", UID: "s"},
			"former-set": {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "s", UID: "former"},
			"pod":        {APIVersion: "v1", Kind: "Pod", Name: "s-" + place, UID: types.UID("uid-" + place)},
			"former-pod": {APIVersion: "v1", Kind: "Pod", Name: "s-" + place, UID: "former"},
			"other":      {APIVersion: "example.com/v1", Kind: "Backup", Name: "b", UID: "other"},
			"friend":     {APIVersion: "example.com/v1", Kind: "Backup", Name: "b", UID: "friend"},
		}[name]
		if !plain && name != "friend" {
			ref.Controller = new(true)
		}
		c.OwnerReferences = append(c.OwnerReferences, ref)
	}
	return c
}

// shortly says who owns a claim, as claimed reads it.
func shortly(c *corev1.PersistentVolumeClaim) string {
	var all []string
	for _, ref := range c.OwnerReferences {
		name := map[types.UID]string{"s": "set", "other": "other", "friend": "friend"}[ref.UID]
		if name == "" {
			name = map[bool]string{true: "former", false: "pod"}[ref.UID == "former"]
		}
		if ref.Controller == nil && name != "friend" {
			name = "~" + name
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// TestRetention: who owns the claim of a member (0), and of a pod that is too many (1), by the policy; "-": nothing is written.
func TestRetention(t *testing.T) {
	for _, c := range []struct {
		deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType
		owners          string
		member, surplus string
		foreign         bool
	}{
		{retain, retain, "", "-", "-", false},
		{retain, retain, "set", "", "", false},
		{retain, retain, "pod friend", "friend", "friend", false},
		{retain, retain, "other", "-", "-", false},
		{remove, retain, "", "set", "set", false},
		{remove, retain, "set", "-", "-", false},
		{remove, retain, "~set", "set", "set", false},
		{remove, retain, "pod", "set", "set", false},
		{remove, retain, "friend", "friend set", "friend set", false},
		{retain, remove, "", "-", "pod", false},
		{retain, remove, "set", "", "pod", false},
		{retain, remove, "pod", "", "-", false},
		{remove, remove, "", "set", "pod", false},
		{remove, remove, "set", "-", "pod", false},
		{remove, remove, "pod", "set", "-", false},
		{remove, remove, "set pod", "set", "pod", false},
		// Somebody else's stays somebody else's, and we take back what we have said.
		{remove, remove, "other", "-", "-", true},
		{remove, remove, "other set", "other", "other", true},
		{remove, remove, "pod other", "other", "other", true},
		// Those of a set or a pod that was there before are not touched.
		{remove, remove, "former-set", "-", "-", true},
		{remove, remove, "former-pod", "-", "-", true},
		{retain, retain, "former-set", "-", "-", false},
	} {
		s := set(1, parallel, retention(c.deleted, c.scaled))
		pods := members("0:new:ready 1:new:ready")
		there := map[string]*corev1.PersistentVolumeClaim{}
		for i, pod := range pods {
			place := fmt.Sprint(i)
			pod.UID = types.UID("uid-" + place)
			there["data-s-"+place] = claimed(place, c.owners)
		}
		plan, err := Decide(State{Set: s, Pods: pods, Revisions: []*appsv1.ControllerRevision{made("old", 1), made("new", 2)}, Now: now,
			Claim: func(name string) *corev1.PersistentVolumeClaim { return there[name] }})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{"s-0": "-", "s-1": "-"}
		for _, one := range plan.Own {
			got[one.Pod.Name] = shortly(one.Claim)
			if one.Foreign != c.foreign {
				t.Errorf("%s/%s, %q: foreign is %v", c.deleted, c.scaled, c.owners, one.Foreign)
			}
		}
		if want := map[string]string{"s-0": c.member, "s-1": c.surplus}; !maps.Equal(got, want) {
			t.Errorf("deleted: %s, scaled: %s, owned by %q: %v, want %v", c.deleted, c.scaled, c.owners, got, want)
		}
		if _, foreign := owners(s, pods[0], claimed("0", c.owners)); foreign != c.foreign {
			t.Errorf("deleted: %s, scaled: %s, owned by %q: foreign is %v", c.deleted, c.scaled, c.owners, foreign)
		}
		if len(plan.Delete) != 1 || plan.Delete[0].Name != "s-1" {
			t.Errorf("deletes %v", plan.Delete)
		}
	}
}

// TestClaimsInTheWay: a member is not made while the claim of its name goes with a pod that was there, and a pod that waits gets the claims that it lacks.
func TestClaimsInTheWay(t *testing.T) {
	for _, c := range []struct {
		name           string
		set            *appsv1.StatefulSet
		pods           string
		claims         []*corev1.PersistentVolumeClaim
		creates, needs string
	}{
		{"its claim goes", set(2, retention(retain, remove)), "", []*corev1.PersistentVolumeClaim{claimed("0", "former-pod")}, "", ""},
		{"its claim goes, in parallel", set(3, parallel, retention(retain, remove)), "", []*corev1.PersistentVolumeClaim{claimed("1", "former-pod")}, "s-0 s-2", ""},
		{"its claim is to stay", set(2, retention(retain, retain)), "", []*corev1.PersistentVolumeClaim{claimed("0", "former-pod")}, "s-0", ""},
		{"its claim goes with a set of the name", set(2, retention(retain, retain)), "", []*corev1.PersistentVolumeClaim{claimed("0", "former-set")}, "", ""},
		{"its claim is there", set(2, retention(retain, remove)), "", []*corev1.PersistentVolumeClaim{claimed("0", "")}, "s-0", ""},
		{"a pod waits for its claim", set(2, retention(retain, retain)), "0:new:pending", nil, "", "s-0"},
		{"a pod waits with its claim", set(2, retention(retain, retain)), "0:new:pending", []*corev1.PersistentVolumeClaim{claimed("0", "")}, "", ""},
		{"a pod runs without its claim", set(1, retention(retain, retain)), "0:new:ready", nil, "", ""},
		{"a pod that is too many waits", set(0, parallel, retention(retain, retain)), "0:new:pending", nil, "", ""},
	} {
		plan, err := Decide(State{Set: c.set, Pods: members(c.pods), Revisions: []*appsv1.ControllerRevision{made("new", 1)}, Now: now, Claim: func(name string) *corev1.PersistentVolumeClaim {
			if i := slices.IndexFunc(c.claims, func(of *corev1.PersistentVolumeClaim) bool { return of.Name == name }); i >= 0 {
				return c.claims[i]
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		names := func(pods []*corev1.Pod) string {
			var all []string
			for _, pod := range pods {
				all = append(all, pod.Name)
			}
			return strings.Join(all, " ")
		}
		if names(plan.Create) != c.creates || names(plan.Supply) != c.needs {
			t.Errorf("%s: creates %q, supplies %q, want %q, %q", c.name, names(plan.Create), names(plan.Supply), c.creates, c.needs)
		}
	}
}
