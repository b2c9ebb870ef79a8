package admission

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// fakeClasses are storage classes.
type fakeClasses struct {
	rest.Lister
	classes []storagev1.StorageClass
}

func (f fakeClasses) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	return &storagev1.StorageClassList{Items: f.classes}, nil
}

func (f fakeClasses) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	i := slices.IndexFunc(f.classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(storagev1.Resource("storageclasses"), name)
	}
	return &f.classes[i], nil
}

// fakeRanges are the limit ranges of each namespace.
type fakeRanges []corev1.LimitRange

func (f fakeRanges) LimitRanges(context.Context, string) ([]corev1.LimitRange, error) { return f, nil }

func attributes(obj, old runtime.Object, op admission.Operation, sub string) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "default", "c",
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), sub, op, nil, false, nil)
}

func TestInUse(t *testing.T) {
	for _, tc := range []struct {
		obj  metav1.Object
		sub  string
		want string
	}{
		{&corev1.PersistentVolume{}, "", "kubernetes.io/pv-protection"},
		{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a/b"}}}, "", "a/b,kubernetes.io/pvc-protection"},
		{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{ClaimFinalizer}}}, "", "kubernetes.io/pvc-protection"},
		{&storagev1.VolumeAttributesClass{}, "", "kubernetes.io/vac-protection"},
		{&corev1.PersistentVolumeClaim{}, "status", ""},
		{&corev1.Pod{}, "", ""},
	} {
		if err := (InUse{}).Admit(t.Context(), attributes(tc.obj.(runtime.Object), nil, admission.Create, tc.sub), nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(tc.obj.GetFinalizers(), ","); got != tc.want {
			t.Errorf("%T %s: %s, want %s", tc.obj, tc.sub, got, tc.want)
		}
	}
}

func TestClassOfNewClaims(t *testing.T) {
	class := func(name string, age time.Duration, marked bool) storagev1.StorageClass {
		c := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
		if marked {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	classes := Claims{Classes: fakeClasses{classes: []storagev1.StorageClass{class("old", time.Hour, true), class("new", time.Minute, true), class("newest", 0, false)}}}
	for name, tc := range map[string]struct {
		claims Claims
		claim  corev1.PersistentVolumeClaim
		op     admission.Operation
		want   string
	}{
		"none":           {classes, corev1.PersistentVolumeClaim{}, admission.Create, "new"},
		"none, no class": {Claims{Classes: fakeClasses{}}, corev1.PersistentVolumeClaim{}, admission.Create, "-"},
		"one":            {classes, corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("newest")}}, admission.Create, "newest"},
		"without":        {classes, corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}}, admission.Create, ""},
		"an old one":     {classes, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.BetaStorageClassAnnotation: "a"}}}, admission.Create, "-"},
		"later":          {classes, corev1.PersistentVolumeClaim{}, admission.Update, "-"},
	} {
		if err := tc.claims.Admit(t.Context(), attributes(&tc.claim, nil, tc.op, ""), nil); err != nil {
			t.Fatal(err)
		}
		got := "-"
		if tc.claim.Spec.StorageClassName != nil {
			got = *tc.claim.Spec.StorageClassName
		}
		if got != tc.want {
			t.Errorf("%s: class %q, want %q", name, got, tc.want)
		}
	}
}

func TestClaimsThatGrow(t *testing.T) {
	claims := Claims{Ranges: fakeRanges{}, Classes: fakeClasses{classes: []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, AllowVolumeExpansion: new(true)}, {ObjectMeta: metav1.ObjectMeta{Name: "stays"}},
	}}}
	claim := func(size, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}, StorageClassName: &class,
		}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	const no = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	for name, tc := range map[string]struct {
		claim, old *corev1.PersistentVolumeClaim
		sub, want  string
	}{
		"grows":           {claim("2Gi", "grows", "Bound"), claim("1Gi", "grows", "Bound"), "", ""},
		"is not bound":    {claim("2Gi", "grows", "Pending"), claim("1Gi", "grows", "Pending"), "", "Only bound persistent volume claims can be expanded"},
		"of a fixed one":  {claim("2Gi", "stays", "Bound"), claim("1Gi", "stays", "Bound"), "", no},
		"of none":         {claim("2Gi", "", "Bound"), claim("1Gi", "", "Bound"), "", no},
		"of one gone":     {claim("2Gi", "gone", "Bound"), claim("1Gi", "gone", "Bound"), "", no},
		"of another":      {claim("2Gi", "grows", "Bound"), claim("1Gi", "stays", "Bound"), "", no},
		"stays":           {claim("1Gi", "stays", "Bound"), claim("1Gi", "stays", "Bound"), "", ""},
		"tells its state": {claim("2Gi", "stays", "Bound"), claim("1Gi", "stays", "Bound"), "status", ""},
	} {
		err := claims.Validate(t.Context(), attributes(tc.claim, tc.old, admission.Update, tc.sub), nil)
		if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestLimitsOfClaims(t *testing.T) {
	storage := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claims := Claims{
		Classes: fakeClasses{classes: []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, AllowVolumeExpansion: new(true)}}},
		Ranges: fakeRanges{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypePersistentVolumeClaim, Min: storage("1Gi"), Max: storage("4Gi")}, {Type: corev1.LimitTypeContainer, Max: storage("1Mi")},
		}}}},
	}
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: storage(size)}, StorageClassName: new("grows")},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	}
	for name, tc := range map[string]struct {
		claim, old *corev1.PersistentVolumeClaim
		want       string
	}{
		"between":          {claim("2Gi"), nil, ""},
		"too little":       {claim("1Mi"), nil, "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"},
		"too much":         {claim("5Gi"), nil, "maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"},
		"grows":            {claim("3Gi"), claim("2Gi"), ""},
		"grows too much":   {claim("5Gi"), claim("2Gi"), "maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"},
		"was there before": {claim("9Gi"), claim("9Gi"), ""},
	} {
		op, old := admission.Create, runtime.Object(nil)
		if tc.old != nil {
			op, old = admission.Update, tc.old
		}
		err := claims.Validate(t.Context(), attributes(tc.claim, old, op, ""), nil)
		if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
