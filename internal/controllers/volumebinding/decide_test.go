package volumebinding

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
)

// The annotations that a binding and its provisioners leave.
const (
	completed   = "pv.kubernetes.io/bind-completed"
	controller  = "pv.kubernetes.io/bound-by-controller"
	provisioned = "pv.kubernetes.io/provisioned-by"
	chosen      = "volume.kubernetes.io/selected-node"
)

func annotate(m *metav1.ObjectMeta, keys ...string) {
	for _, key := range keys {
		key, value, _ := strings.Cut(key, "=")
		metav1.SetMetaDataAnnotation(m, key, value)
	}
}

// claimed is a claim of 2 Gi, to be written to by one node, of the UID u.
func claimed(changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

type changeClaim = func(*corev1.PersistentVolumeClaim)

func of(class string) changeClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

func in(volume string) changeClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
}

func noted(keys ...string) changeClaim {
	return func(c *corev1.PersistentVolumeClaim) { annotate(&c.ObjectMeta, keys...) }
}

// sized is an available volume that fits the claim when it is large enough.
func sized(name, size string, changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

type changeVolume = func(*corev1.PersistentVolume)

func kept(name string, uid types.UID) changeVolume {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: name, UID: uid}
	}
}

func classed(class string) changeVolume {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = class }
}

func phased(p corev1.PersistentVolumePhase) changeVolume {
	return func(v *corev1.PersistentVolume) { v.Status.Phase = p }
}

func marked(keys ...string) changeVolume {
	return func(v *corev1.PersistentVolume) { annotate(&v.ObjectMeta, keys...) }
}

func policy(p corev1.PersistentVolumeReclaimPolicy) changeVolume {
	return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = p }
}

func leaving(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func class(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
}

const here = "example.com/here"

// asks is the event of a claim whose volume the provisioner here is to make.
const asks = " | Normal ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/here' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."

func TestClaim(t *testing.T) {
	classes := []*storagev1.StorageClass{
		class("now", here, storagev1.VolumeBindingImmediate), class("late", here, storagev1.VolumeBindingWaitForFirstConsumer),
		class("theirs", "example.com/there", storagev1.VolumeBindingImmediate), class("none", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer),
	}
	many := func(v *corev1.PersistentVolume) {
		v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadOnlyMany, corev1.ReadWriteMany)
	}
	block := func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	only := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
	}
	ssd := func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"disk": "ssd"} }
	gold := func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") }
	volumes := func(list ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return list }
	for name, tc := range map[string]struct {
		claim   *corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		usual   string // the class that is the default
		waiting []string
		// want is "VERB [OBJECT] [| TYPE REASON: MESSAGE]".
		want string
	}{
		// It would have any.
		"no volume":                   {claimed(), nil, "", nil, "wait | Normal FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"the smallest that is enough": {claimed(), volumes(sized("large", "9Gi"), sized("small", "1Gi"), sized("fits", "3Gi")), "", nil, "bind fits"},
		"one of fewer ways":           {claimed(), volumes(sized("ways", "2Gi", many), sized("fits", "9Gi")), "", nil, "bind fits"},
		"one of more ways":            {claimed(), volumes(sized("ways", "2Gi", many)), "", nil, "bind ways"},
		"one that was kept":           {claimed(), volumes(sized("fits", "2Gi"), sized("kept", "9Gi", many, kept("c", ""))), "", nil, "bind kept"},
		"one that was made":           {claimed(of("now")), volumes(sized("made", "2Gi", classed("now"), kept("c", "u"))), "", nil, "bind made"},
		"kept for an older one":       {claimed(), volumes(sized("kept", "2Gi", kept("c", "older"))), "", nil, "wait | Normal FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"kept for others":             {claimed(of("")), volumes(sized("kept", "2Gi", kept("d", ""))), "", nil, "wait | Normal FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"kept, too small":             {claimed(of("")), volumes(sized("kept", "1Gi", kept("c", ""))), "", nil, "wait | Normal FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"of labels":                   {claimed(only), volumes(sized("other", "2Gi"), sized("fits", "3Gi", ssd)), "", nil, "bind fits"},
		"not of its class":            {claimed(of("now")), volumes(sized("v", "2Gi")), "", nil, "announce now" + asks},
		"not free":                    {claimed(of("now")), volumes(sized("v", "2Gi", classed("now"), phased(corev1.VolumeReleased))), "", nil, "announce now" + asks},
		"leaving":                     {claimed(of("now")), volumes(sized("v", "2Gi", classed("now"), leaving)), "", nil, "announce now" + asks},
		"a device":                    {claimed(of("now")), volumes(sized("v", "2Gi", classed("now"), block)), "", nil, "announce now" + asks},
		"of attributes":               {claimed(of("now")), volumes(sized("v", "2Gi", classed("now"), gold)), "", nil, "announce now" + asks},
		"of its class":                {claimed(of("now")), volumes(sized("v", "2Gi", classed("now"))), "", nil, "bind v"},
		"a class that there is not":   {claimed(of("gone")), nil, "", nil, `wait | Warning ProvisioningFailed: storageclass.storage.k8s.io "gone" not found`},
		"a default class":             {claimed(), nil, "now", nil, "classify now"},
		"a default class, not wanted": {claimed(of("")), nil, "now", nil, "wait | Normal FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"a volume before a class":     {claimed(), volumes(sized("v", "2Gi")), "now", nil, "bind v"},
		"late, nobody":                {claimed(of("late")), volumes(sized("v", "2Gi", classed("late"))), "", nil, "wait | Normal WaitForFirstConsumer: waiting for first consumer to be created before binding"},
		"late, a pod":                 {claimed(of("late")), nil, "", []string{"p"}, "wait | Normal WaitForPodScheduled: waiting for pod p to be scheduled"},
		"late, pods":                  {claimed(of("late")), nil, "", []string{"q", "p"}, "wait | Normal WaitForPodScheduled: waiting for pods p,q to be scheduled"},
		"late, kept":                  {claimed(of("late")), volumes(sized("kept", "2Gi", classed("late"), kept("c", ""))), "", nil, "bind kept"},
		"late, a node":                {claimed(of("late"), noted(chosen+"=n1")), volumes(sized("v", "2Gi", classed("late"))), "", nil, "announce late" + asks},
		"late, a node, nobody makes":  {claimed(of("none"), noted(chosen+"=n1")), nil, "", nil, "wait | Warning ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner"},
		"on its way out":              {claimed(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }), volumes(sized("v", "2Gi")), "", nil, ""},

		// It names one.
		"named, none":               {claimed(in("v")), nil, "", nil, "wait"},
		"named":                     {claimed(in("v")), volumes(sized("v", "2Gi")), "", nil, "bind v"},
		"named, of no phase yet":    {claimed(in("v")), volumes(sized("v", "2Gi", phased(corev1.VolumePending))), "", nil, "bind v"},
		"named, kept":               {claimed(in("v")), volumes(sized("v", "1Gi", kept("c", ""))), "", nil, "bind v"},
		"named, half bound":         {claimed(in("v")), volumes(sized("v", "2Gi", kept("c", "u"))), "", nil, "bind v"},
		"named, another's":          {claimed(in("v")), volumes(sized("v", "2Gi", kept("d", "w"))), "", nil, `wait | Warning FailedBinding: volume "v" already bound to a different claim.`},
		"named, small":              {claimed(in("v")), volumes(sized("v", "1Gi")), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": requested PV is too small`},
		"named, of a class":         {claimed(in("v")), volumes(sized("v", "2Gi", classed("now"))), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": storageClassName does not match`},
		"named, of attributes":      {claimed(in("v")), volumes(sized("v", "2Gi", gold)), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": volumeAttributesClassName does not match`},
		"named, a device":           {claimed(in("v")), volumes(sized("v", "2Gi", block)), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": incompatible volumeMode`},
		"named, leaving":            {claimed(in("v")), volumes(sized("v", "2Gi", leaving)), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": the volume is marked for deletion "v"`},
		"named, to be read by many": {claimed(in("v"), func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadOnlyMany }), volumes(sized("v", "2Gi")), "", nil, `wait | Warning VolumeMismatch: Cannot bind to requested volume "v": incompatible accessMode`},

		// It was bound.
		"bound":           {claimed(in("v"), noted(completed)), volumes(sized("v", "2Gi", kept("c", "u"))), "", nil, "bind v"},
		"bound by halves": {claimed(in("v"), noted(completed)), volumes(sized("v", "2Gi")), "", nil, "bind v"},
		// Who has written that cannot be told. With Kubernetes, too, whoever writes both gets any volume that points at nobody, whatever its class and size.
		"bound, says a user":  {claimed(of("late"), in("v"), noted(completed)), volumes(sized("v", "1Gi", classed("now"), block)), "", nil, "bind v"},
		"bound, volume gone":  {claimed(in("v"), noted(completed)), nil, "", nil, "lose | Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!"},
		"bound to what":       {claimed(noted(completed)), volumes(sized("v", "2Gi")), "", nil, "lose | Warning ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"},
		"bound to another's":  {claimed(in("v"), noted(completed)), volumes(sized("v", "2Gi", kept("d", "w"))), "", nil, "lose | Warning ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly"},
		"bound, an older one": {claimed(in("v"), noted(completed)), volumes(sized("v", "2Gi", kept("c", "older"))), "", nil, "lose | Warning ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly"},
	} {
		t.Run(name, func(t *testing.T) {
			all := make([]*storagev1.StorageClass, 0, len(classes))
			for _, c := range classes {
				if c = c.DeepCopy(); c.Name == tc.usual {
					c.Annotations = map[string]string{pods.DefaultClassAnnotation: "true"}
				}
				all = append(all, c)
			}
			got, err := Claim(Seen{Claim: tc.claim, Volumes: tc.volumes, Classes: all, Waiting: tc.waiting})
			if err != nil {
				t.Fatal(err)
			}
			text := string(got.Verb)
			if got.Volume != nil {
				text += " " + got.Volume.Name
			}
			if got.Class != nil {
				text += " " + got.Class.Name
			}
			if text += textOf(got.Event); text != tc.want {
				t.Errorf("%s\nwant %s", text, tc.want)
			}
		})
	}
	bad := claimed(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}
	})
	if got, err := Claim(Seen{Claim: bad, Volumes: volumes(sized("v", "2Gi"))}); err == nil {
		t.Errorf("a selector that nothing can fit: %+v", got)
	}
}

func textOf(e *Event) string {
	if e == nil {
		return ""
	}
	return " | " + e.Type + " " + e.Reason + ": " + e.Message
}

func TestVolume(t *testing.T) {
	const deletes = corev1.PersistentVolumeReclaimDelete
	made := []changeVolume{kept("c", "u"), policy(deletes), marked(provisioned + "=" + here)}
	with := func(more ...changeVolume) *corev1.PersistentVolume {
		return sized("v", "2Gi", append(append([]changeVolume{}, made...), more...)...)
	}
	csi := func(v *corev1.PersistentVolume) { v.Spec.CSI = &corev1.CSIPersistentVolumeSource{} }
	device := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	newer := func(c *corev1.PersistentVolumeClaim) { c.UID = "newer" }
	const failed = `error getting deleter volume plugin for volume "v": no deletable volume plugin matched`
	for name, tc := range map[string]struct {
		volume *corev1.PersistentVolume
		claim  *corev1.PersistentVolumeClaim
		want   ForVolume
	}{
		"new":                           {sized("v", "1Gi", phased(corev1.VolumePending)), nil, ForVolume{Phase: corev1.VolumeAvailable}},
		"free":                          {sized("v", "1Gi"), nil, ForVolume{}},
		"kept":                          {sized("v", "1Gi", kept("c", ""), phased(corev1.VolumePending)), claimed(), ForVolume{Phase: corev1.VolumeAvailable}},
		"bound":                         {sized("v", "1Gi", kept("c", "u")), claimed(in("v")), ForVolume{Phase: corev1.VolumeBound}},
		"bound as it was":               {sized("v", "1Gi", kept("c", "u"), phased(corev1.VolumeBound)), claimed(in("v")), ForVolume{}},
		"half bound":                    {sized("v", "1Gi", kept("c", "u")), claimed(), ForVolume{Claim: true}},
		"half bound, of another mode":   {sized("v", "1Gi", kept("c", "u")), claimed(device), ForVolume{Event: warn("VolumeMismatch", `Cannot bind PersistentVolume to requested PersistentVolumeClaim "c" due to incompatible volumeMode.`), ClaimEvent: warn("VolumeMismatch", `Cannot bind PersistentVolume "v" to requested PersistentVolumeClaim due to incompatible volumeMode.`)}},
		"retained":                      {sized("v", "1Gi", kept("c", "u"), phased(corev1.VolumeBound)), nil, ForVolume{Phase: corev1.VolumeReleased}},
		"retained, as it was":           {sized("v", "1Gi", kept("c", "u"), phased(corev1.VolumeReleased)), nil, ForVolume{}},
		"retained, a newer claim":       {sized("v", "1Gi", kept("c", "u"), phased(corev1.VolumeBound)), claimed(newer, in("v")), ForVolume{Phase: corev1.VolumeReleased}},
		"made, the claim is gone":       {with(phased(corev1.VolumeBound)), nil, ForVolume{Phase: corev1.VolumeReleased}},
		"made, released":                {with(phased(corev1.VolumeReleased)), nil, ForVolume{}},
		"made, failed, once more":       {with(phased(corev1.VolumeFailed)), nil, ForVolume{}},
		"made, the claim is there":      {with(phased(corev1.VolumeBound)), claimed(in("v")), ForVolume{}},
		"made, the claim has another":   {with(phased(corev1.VolumeBound)), claimed(in("w")), ForVolume{Phase: corev1.VolumeReleased}},
		"made, retained, has another":   {with(phased(corev1.VolumeBound), policy(corev1.PersistentVolumeReclaimRetain)), claimed(in("w")), ForVolume{Unbind: true, Phase: corev1.VolumeAvailable}},
		"of a driver":                   {sized("v", "1Gi", kept("c", "u"), policy(deletes), csi, phased(corev1.VolumeBound)), nil, ForVolume{Phase: corev1.VolumeReleased}},
		"nobody's to delete":            {sized("v", "1Gi", kept("c", "u"), policy(deletes), phased(corev1.VolumeBound)), nil, ForVolume{Phase: corev1.VolumeFailed, Message: failed, Event: warn("VolumeFailedDelete", failed)}},
		"nobody's to delete, as it was": {sized("v", "1Gi", kept("c", "u"), policy(deletes), phased(corev1.VolumeFailed)), nil, ForVolume{}},
		"of a policy of its own": {sized("v", "1Gi", kept("c", "u"), policy("Recycle"), phased(corev1.VolumeBound)), nil, ForVolume{Phase: corev1.VolumeFailed, Message: "Volume has unrecognized PersistentVolumeReclaimPolicy",
			Event: warn("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")}},
		"the claim has another": {sized("v", "1Gi", kept("c", "u"), phased(corev1.VolumeBound), marked(controller)), claimed(in("w")), ForVolume{Unbind: true, Phase: corev1.VolumeAvailable}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Volume(tc.volume, tc.claim)
			gotEvents, wantEvents := textOf(got.Event)+textOf(got.ClaimEvent), textOf(tc.want.Event)+textOf(tc.want.ClaimEvent)
			got.Event, got.ClaimEvent, tc.want.Event, tc.want.ClaimEvent = nil, nil, nil, nil
			if got != tc.want || gotEvents != wantEvents {
				t.Errorf("%+v%s\nwant %+v%s", got, gotEvents, tc.want, wantEvents)
			}
		})
	}
}

// A binding is written in steps. After each of them, and after nothing, the decisions complete it, and then have nothing to change.
func TestBindingIsCompleted(t *testing.T) {
	for steps := range 5 {
		claim, v := claimed(of("now")), sized("v", "3Gi", classed("now"))
		for step := 0; ; step++ {
			if step > 20 {
				t.Fatalf("after %d steps: it never ends", steps)
			}
			d, err := Claim(Seen{Claim: claim, Volumes: []*corev1.PersistentVolume{v}, Classes: []*storagev1.StorageClass{class("now", here, storagev1.VolumeBindingImmediate)}})
			if err != nil || d.Verb != Bind || d.Volume != v {
				t.Fatalf("after %d steps: %+v, %v", steps, d, err)
			}
			limit := 4
			if step == 0 {
				limit = steps // the controller dies
			}
			written := 0
			write := func(changed bool, do func()) {
				if written++; changed && written <= limit {
					do()
				}
			}
			bound, first, err := VolumeFor(v, claim)
			if err != nil {
				t.Fatal(err)
			}
			write(first, func() { v = bound })
			phase := phaseOf(v, corev1.VolumeBound)
			write(phase.Phase != "", func() { v = v.DeepCopy(); v.Status.Phase = phase.Phase })
			named, third := ClaimFor(claim, v)
			write(third, func() { claim = named })
			status, fourth := StatusOf(claim, corev1.ClaimBound, v)
			write(fourth, func() { claim = status })
			if step > 0 && !first && phase.Phase == "" && !third && !fourth {
				break
			}
		}
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != "u" || v.Annotations[controller] != "yes" || v.Status.Phase != corev1.VolumeBound {
			t.Errorf("after %d steps the volume is %+v", steps, v)
		}
		if claim.Spec.VolumeName != "v" || claim.Annotations[completed] != "yes" || claim.Annotations[controller] != "yes" || claim.Status.Phase != corev1.ClaimBound ||
			claim.Status.Capacity.Storage().String() != "3Gi" || len(claim.Status.AccessModes) != 1 {
			t.Errorf("after %d steps the claim is %+v", steps, claim)
		}
		if d := Volume(v, claim); d != (ForVolume{}) {
			t.Errorf("after %d steps there is more to do about the volume: %+v", steps, d)
		}
		if free := Unbound(v); free.Spec.ClaimRef != nil || len(free.Annotations) > 0 || v.Spec.ClaimRef == nil {
			t.Errorf("unbound: %+v", free)
		}
	}
}

func TestStatusOf(t *testing.T) {
	bound := claimed(in("v"), func(c *corev1.PersistentVolumeClaim) {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, CurrentVolumeAttributesClassName: new("silver")}
	})
	gold := func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") }
	// The volume has grown, what is in it has not yet.
	if now, changed := StatusOf(bound, corev1.ClaimBound, sized("v", "5Gi", gold)); changed {
		t.Errorf("a claim that is bound as it was: %+v", now.Status)
	}
	if now, changed := StatusOf(claimed(in("v")), corev1.ClaimBound, sized("v", "5Gi", gold)); !changed || *now.Status.CurrentVolumeAttributesClassName != "gold" {
		t.Errorf("a claim that is bound: %+v", now.Status)
	}
	if now, _ := StatusOf(claimed(in("v")), corev1.ClaimBound, sized("v", "5Gi", marked("volume.alpha.kubernetes.io/pre-resize-capacity=3Gi"))); now.Status.Capacity.Storage().String() != "3Gi" {
		t.Errorf("a claim whose volume has grown, and what is in it has not: %+v", now.Status)
	}
	now, changed := StatusOf(bound, corev1.ClaimLost, nil)
	if s := now.Status; !changed || s.Phase != corev1.ClaimLost || s.Capacity != nil || s.AccessModes != nil || s.CurrentVolumeAttributesClassName != nil {
		t.Errorf("a claim that is lost: %+v", s)
	}
	if bound.Status.Phase != corev1.ClaimBound {
		t.Error("the claim itself was changed")
	}
}

func TestAnnounced(t *testing.T) {
	claim := claimed()
	now, changed := Announced(claim, "a.b/c")
	if !changed || now.Annotations["volume.kubernetes.io/storage-provisioner"] != "a.b/c" || now.Annotations["volume.beta.kubernetes.io/storage-provisioner"] != "a.b/c" || claim.Annotations != nil {
		t.Errorf("%v, changed=%v", now.Annotations, changed)
	}
	if _, changed := Announced(now, "a.b/c"); changed {
		t.Error("it is told twice")
	}
}
