package volumeprotection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestVolume(t *testing.T) {
	goes := &metav1.Time{}
	for name, tc := range map[string]struct {
		volume corev1.PersistentVolume
		want   Verb
	}{
		"is there":         {corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{VolumeFinalizer}}}, Leave},
		"has none":         {corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a/b"}}}, Protect},
		"goes, bound":      {corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: goes, Finalizers: []string{VolumeFinalizer}}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}, Leave},
		"goes, released":   {corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: goes, Finalizers: []string{VolumeFinalizer}}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}}, Release},
		"goes, others too": {corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: goes, Finalizers: []string{"a/b"}}}, Leave},
	} {
		if got := Volume(&tc.volume); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// with is a pod that has the claim c, or brings it along, on a node if that is not empty.
func with(node string, along bool, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "v"}}}}
	if along {
		p.Spec.Volumes[0].Ephemeral = &corev1.EphemeralVolumeSource{}
	} else {
		p.Spec.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-v"}
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func TestClaim(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	done := func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64) }
	elsewhere := func(p *corev1.Pod) { p.Namespace = "other" }
	another := func(p *corev1.Pod) { p.UID = "another" }
	stopping := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64(30))
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want Verb
		used corev1.ConditionStatus
	}{
		"nobody":                           {nil, Release, corev1.ConditionTrue},
		"a pod":                            {with("n", false, another), Leave, corev1.ConditionFalse},
		"a pod that waits":                 {with("", false), Release, corev1.ConditionFalse},
		"a pod that has ended":             {with("n", false, ended), Leave, corev1.ConditionTrue}, // it may be mounted yet
		"a pod that is done":               {with("n", false, done, another), Leave, corev1.ConditionFalse},
		"a pod that owns it":               {with("n", false), Leave, corev1.ConditionFalse},
		"a pod that owns it, and stops":    {with("n", false, stopping), Leave, corev1.ConditionFalse},
		"a pod that owns it, done":         {with("n", false, done), Release, corev1.ConditionFalse}, // it may wait for the claim to go
		"a pod elsewhere":                  {with("n", false, elsewhere), Release, corev1.ConditionTrue},
		"a pod that brought it":            {with("n", true), Leave, corev1.ConditionFalse},
		"a pod that brought it, and ended": {with("n", true, ended), Leave, corev1.ConditionTrue},
		"a pod that brought it, done":      {with("n", true, done), Release, corev1.ConditionFalse},
		"a pod of its name, a later one":   {with("n", true, another), Release, corev1.ConditionTrue},
	} {
		var all []*corev1.Pod
		if tc.pod != nil {
			all = append(all, tc.pod)
		}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-v", Finalizers: []string{ClaimFinalizer}, OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		if got := Claim(claim, all); got != Leave {
			t.Errorf("%s: a claim that stays: %q", name, got)
		}
		c, changed := Unused(claim, all, metav1.Now())
		if c.Status != tc.used || !changed {
			t.Errorf("%s: unused is %+v, changed=%v, want %s", name, c, changed, tc.used)
		}
		claim.Status.Conditions = append(claim.Status.Conditions, c)
		if _, changed := Unused(claim, all, metav1.Now()); changed {
			t.Errorf("%s: it is told twice", name)
		}
		claim.DeletionTimestamp = &metav1.Time{}
		if got := Claim(claim, all); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
