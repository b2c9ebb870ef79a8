package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/storage/volume"
)

const here = "n"

func claimed() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "1", Annotations: map[string]string{helpers.AnnStorageProvisioner: Provisioner, helpers.AnnSelectedNode: here}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

func bound() *corev1.PersistentVolumeClaim {
	c := claimed()
	c.Spec.VolumeName = "pvc-1"
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: c.Spec.Resources.Requests.DeepCopy()}
	return c
}

func recorded(phase Phase) *Record {
	return &Record{Version: 1, Name: "pvc-1", Phase: phase, Claim: Claimant{"a", "c", "1"}, Size: 1 << 30, Hold: Nothing}
}

func made(phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	v := Volume(recorded(Ready), "/d", here, claimed(), Class(true), resource.MustParse("1Gi"))
	v.Status.Phase = phase
	return v
}

// with changes an object.
func with[T any](o T, change func(T)) T {
	change(o)
	return o
}

func deleted(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	now := metav1.Now()
	v.DeletionTimestamp = &now
	return v
}

func TestDecide(t *testing.T) {
	type pv = *corev1.PersistentVolume
	type pvc = *corev1.PersistentVolumeClaim
	retained := func(v pv) { v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }
	elsewhere := func(v pv) { v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "m" }
	kept := func(v pv) { v.Spec.ClaimRef = nil }
	named := func(v pv) { v.Spec.ClaimRef.UID = "" }
	large := func(c pvc) { c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi") }
	for name, c := range map[string]struct {
		seen Seen
		want Verb
	}{
		"nothing":                                          {Seen{}, Leave},
		"a claim that waits":                               {Seen{Claim: claimed()}, Make},
		"one that was begun":                               {Seen{Claim: claimed(), Record: recorded(Creating)}, Make},
		"one whose volume the API has forgotten":           {Seen{Claim: claimed(), Record: recorded(Ready)}, Make},
		"one that names a volume":                          {Seen{Claim: bound()}, Leave},
		"one that goes":                                    {Seen{Claim: with(claimed(), func(c pvc) { now := metav1.Now(); c.DeletionTimestamp = &now })}, Leave},
		"one that nobody told us of":                       {Seen{Claim: with(claimed(), func(c pvc) { c.Annotations[helpers.AnnStorageProvisioner] = "x" })}, Leave},
		"one without a node yet":                           {Seen{Claim: with(claimed(), func(c pvc) { delete(c.Annotations, helpers.AnnSelectedNode) })}, Leave},
		"one of another node":                              {Seen{Claim: with(claimed(), func(c pvc) { c.Annotations[helpers.AnnSelectedNode] = "m" })}, Leave},
		"one of a node that is gone":                       {Seen{Claim: with(claimed(), func(c pvc) { c.Annotations[helpers.AnnSelectedNode] = "m" }), NodeGone: true}, Reselect},
		"begun, and nobody wants it":                       {Seen{Record: recorded(Creating)}, Undo},
		"begun, and the claim has another":                 {Seen{Record: recorded(Creating), Claim: bound()}, Undo},
		"begun, and another node was faster":               {Seen{Record: recorded(Creating), Claim: claimed(), Volume: with(made(corev1.VolumePending), elsewhere)}, Undo},
		"begun, and in the API":                            {Seen{Record: recorded(Creating), Claim: claimed(), Volume: made(corev1.VolumePending)}, Confirm},
		"all is well":                                      {Seen{Record: recorded(Ready), Claim: bound(), Volume: made(corev1.VolumeBound)}, Leave},
		"a directory that nobody knows":                    {Seen{Record: recorded(Ready)}, Stray},
		"its volume is gone, the claim is not":             {Seen{Record: recorded(Ready), Claim: bound()}, Stray},
		"the directory is gone":                            {Seen{Record: recorded(Ready), Missing: true, Claim: bound(), Volume: made(corev1.VolumeBound)}, Lost},
		"directory and record are gone":                    {Seen{Claim: bound(), Volume: made(corev1.VolumeBound)}, Lost},
		"another node's directory":                         {Seen{Claim: bound(), Volume: with(made(corev1.VolumeBound), elsewhere)}, Leave},
		"released":                                         {Seen{Record: recorded(Ready), Volume: made(corev1.VolumeReleased)}, Remove},
		"released, and deleted":                            {Seen{Record: recorded(Ready), Volume: deleted(made(corev1.VolumeReleased))}, Remove},
		"released, and the claim is there":                 {Seen{Record: recorded(Ready), Claim: bound(), Volume: made(corev1.VolumeReleased)}, Leave},
		"released and retained":                            {Seen{Record: recorded(Ready), Volume: with(made(corev1.VolumeReleased), retained)}, Leave},
		"released, and given back to any claim":            {Seen{Record: recorded(Ready), Volume: with(made(corev1.VolumeReleased), func(v pv) { v.Spec.ClaimRef = nil })}, Leave},
		"released, and given back to one name":             {Seen{Record: recorded(Ready), Volume: with(made(corev1.VolumeReleased), func(v pv) { v.Spec.ClaimRef.UID = "" })}, Leave},
		"retained and deleted":                             {Seen{Record: recorded(Ready), Volume: deleted(with(made(corev1.VolumeReleased), retained))}, Release},
		"deleted, and never bound":                         {Seen{Record: recorded(Ready), Volume: deleted(made(corev1.VolumeAvailable))}, Release},
		"deleted while it is bound":                        {Seen{Record: recorded(Ready), Claim: bound(), Volume: deleted(made(corev1.VolumeBound))}, Leave},
		"deleted, and let go of":                           {Seen{Record: recorded(Ready), Volume: with(deleted(made(corev1.VolumeReleased)), func(v pv) { v.Finalizers = nil })}, Leave},
		"another node's, released":                         {Seen{Volume: with(made(corev1.VolumeReleased), elsewhere)}, Leave},
		"another provisioner's, released":                  {Seen{Volume: with(made(corev1.VolumeReleased), func(v pv) { delete(v.Annotations, helpers.AnnDynamicallyProvisioned) })}, Leave},
		"its removal was begun":                            {Seen{Record: recorded(Deleting)}, Remove},
		"its removal was begun, the volume stays":          {Seen{Record: recorded(Deleting), Volume: deleted(made(corev1.VolumeReleased))}, Remove},
		"its removal was begun, of a volume that is bound": {Seen{Record: recorded(Deleting), Claim: bound(), Volume: made(corev1.VolumeBound)}, Confirm},
		"it is to grow":                                    {Seen{Record: recorded(Ready), Claim: with(bound(), large), Volume: made(corev1.VolumeBound)}, Grow},
		"it is to grow, and not bound yet":                 {Seen{Record: recorded(Ready), Claim: with(with(bound(), large), func(c pvc) { c.Status.Phase = corev1.ClaimPending }), Volume: made(corev1.VolumeBound)}, Leave},
		"it has grown, and the claim is not told":          {Seen{Record: recorded(Ready), Claim: with(bound(), large), Volume: with(made(corev1.VolumeBound), func(v pv) { v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi") })}, Grow},
		"filled, and nobody knows it":                      {Seen{Record: recorded(Filling)}, Abandon},
		"filled, and in the API":                           {Seen{Record: recorded(Filling), Volume: with(made(corev1.VolumeAvailable), kept)}, Abandon},
		"filled, and in the API for a name":                {Seen{Record: recorded(Filling), Volume: with(made(corev1.VolumeAvailable), named)}, Abandon},
		"filled, and its volume is deleted":                {Seen{Record: recorded(Filling), Volume: deleted(with(made(corev1.VolumeAvailable), named))}, Abandon},
		"filled, and another node has the volume":          {Seen{Record: recorded(Filling), Volume: with(made(corev1.VolumeAvailable), elsewhere)}, Abandon},
		"filled, and its volume is bound":                  {Seen{Record: recorded(Filling), Volume: made(corev1.VolumeBound)}, Confirm},
		"filled, and a claim names it":                     {Seen{Record: recorded(Filling), Volume: with(made(corev1.VolumeAvailable), named), Claim: bound()}, Confirm},
		"filled, and a claim names it that is gone":        {Seen{Record: recorded(Filling), Volume: made(corev1.VolumeReleased)}, Confirm},
		"filled, a claim names it, and its volume is gone": {Seen{Record: recorded(Filling), Claim: bound()}, Confirm},
	} {
		t.Run(name, func(t *testing.T) {
			c.seen.Node, c.seen.Class = here, Class(true)
			if got := Decide(c.seen); got.Verb != c.want {
				t.Errorf("decided is %q (%s), want %q", got.Verb, got.Why, c.want)
			}
		})
	}
}

// What cannot be had is refused, with what would be right.
func TestRefused(t *testing.T) {
	type pvc = *corev1.PersistentVolumeClaim
	block := corev1.PersistentVolumeBlock
	attributes := "gold"
	class := func(key, value string) *storagev1.StorageClass {
		c := Class(false)
		c.Parameters = map[string]string{key: value}
		return c
	}
	for name, c := range map[string]struct {
		claim pvc
		class *storagev1.StorageClass
		want  string // empty: it is made
	}{
		"once":              {claimed(), Class(true), ""},
		"once, by one pod":  {with(claimed(), func(c pvc) { c.Spec.AccessModes[0] = corev1.ReadWriteOncePod }), Class(true), ""},
		"many":              {with(claimed(), func(c pvc) { c.Spec.AccessModes[0] = corev1.ReadWriteMany }), Class(true), "use ReadWriteOnce"},
		"read":              {with(claimed(), func(c pvc) { c.Spec.AccessModes[0] = corev1.ReadOnlyMany }), Class(true), "use ReadWriteOnce"},
		"a selector":        {with(claimed(), func(c pvc) { c.Spec.Selector = &metav1.LabelSelector{} }), Class(true), "remove spec.selector"},
		"a source":          {with(claimed(), func(c pvc) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }), Class(true), "begin empty"},
		"attributes":        {with(claimed(), func(c pvc) { c.Spec.VolumeAttributesClassName = &attributes }), Class(true), `"gold"`},
		"a device":          {with(claimed(), func(c pvc) { c.Spec.VolumeMode = &block }), Class(true), ""},
		"a device, no room": {with(claimed(), func(c pvc) { c.Spec.VolumeMode = &block }), class(IsolationParameter, "quota"), "volumeMode Block"},
		"no parameters":     {claimed(), with(Class(true), func(c *storagev1.StorageClass) { c.Parameters = nil }), ""},
		"image":             {claimed(), class(IsolationParameter, "image"), ""},
		"another value":     {claimed(), class(IsolationParameter, "images"), "auto, quota, image or none"},
		"another parameter": {claimed(), class("type", "ssd"), "the parameter type"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(Seen{Node: here, Claim: c.claim, Class: c.class})
			if want := map[bool]Verb{true: Make, false: Refuse}[c.want == ""]; got.Verb != want || !strings.Contains(got.Why, c.want) {
				t.Errorf("decided is %q, %q; want %q, %q", got.Verb, got.Why, want, c.want)
			}
		})
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"1": 4096, "4Ki": 4096, "1Gi": 1 << 30, "1G": 1_000_001_536, "8Ei": 1<<62 - 4096} {
		if got := Bytes(resource.MustParse(text)); got != want {
			t.Errorf("%s is %d bytes, want %d", text, got, want)
		}
	}
}

// A claim tells of its growth once, and not any more when that is over.
func TestResizing(t *testing.T) {
	c := bound()
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimControllerResizeError}, {Type: "Unused"}}
	c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	told, changed := Resizing(c, metav1.Now())
	if !changed || len(told.Status.Conditions) != 2 || told.Status.Conditions[1].Type != corev1.PersistentVolumeClaimResizing || len(c.Status.AllocatedResources) > 0 {
		t.Errorf("changed: %t, %+v", changed, told.Status)
	}
	if _, changed := Resizing(told, metav1.Now()); changed {
		t.Error("it is told of twice")
	}
	done := Resized(told, resource.MustParse("2Gi"))
	if len(done.Status.Conditions) != 1 || done.Status.AllocatedResourceStatuses != nil || done.Status.Capacity.Storage().String() != "2Gi" {
		t.Errorf("after it %+v", done.Status)
	}
}

func TestARecordThatIsNotKnown(t *testing.T) {
	if err := recorded(Ready).Check("pvc-1", here); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Record){
		"newer": func(r *Record) { r.Version = 2 }, "another's": func(r *Record) { r.Name = "pvc-2" }, "phase": func(r *Record) { r.Phase = "x" }, "hold": func(r *Record) { r.Hold = "x" },
	} {
		if err := with(recorded(Ready), change).Check("pvc-1", here); err == nil {
			t.Errorf("%s: nothing is wrong with it", name)
		}
	}
}

// A copy is of the form that the class gives volumes, and is recorded as one that nobody has yet.
func TestCopy(t *testing.T) {
	c := claimed()
	c.UID, c.Annotations = "", nil
	d := Copy(here, "pvc-x", c, Class(true))
	if d.Verb != Make || d.New.Phase != Filling || d.New.Name != "pvc-x" || d.New.Claim != (Claimant{"a", "c", ""}) || d.New.Size != 1<<30 || d.Isolation != Auto {
		t.Errorf("decided is %+v", d)
	}
	c.Spec.AccessModes[0] = corev1.ReadWriteMany
	if d := Copy(here, "pvc-x", c, Class(true)); d.Verb != Refuse {
		t.Errorf("decided is %+v", d)
	}
}

func TestUsers(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, v corev1.VolumeSource) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}, {Name: "w", VolumeSource: v}}},
			Status: corev1.PodStatus{Phase: phase}}
	}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	users := Users([]corev1.Pod{pod("z", corev1.PodRunning, claim), pod("y", corev1.PodPending, claim), pod("x", corev1.PodSucceeded, claim), pod("w", corev1.PodFailed, claim),
		pod("e", corev1.PodRunning, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})})
	if got := strings.Join(users["a/c"], " "); got != "y z" || len(users) != 3 || users["a/e-v"][0] != "e" {
		t.Errorf("the users are %v", users)
	}
}
