package statefulset

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// claiming is a set with two templates, one of which has labels.
func claiming() *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"of": "data"}}}, {ObjectMeta: metav1.ObjectMeta{Name: "log"}},
		},
	}}
}

// TestMemberWithClaims: a member has a volume for each template, in place of what the pod's template has under that name, and the template stays as it is.
func TestMemberWithClaims(t *testing.T) {
	set := claiming()
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "log", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}}}
	before := template.DeepCopy()
	got := map[string]string{}
	for _, v := range newPod(set, template, "r", 3).Spec.Volumes {
		got[v.Name] = ""
		if v.PersistentVolumeClaim != nil {
			got[v.Name] = v.PersistentVolumeClaim.ClaimName
		}
	}
	if want := map[string]string{"data": "data-web-3", "log": "log-web-3", "tmp": ""}; !maps.Equal(got, want) {
		t.Errorf("volumes %v, want %v", got, want)
	}
	if len(template.Spec.Volumes) != 2 || template.Spec.Volumes[0].EmptyDir == nil || template.Spec.Volumes[1].Name != before.Spec.Volumes[1].Name {
		t.Errorf("the template has become %v", template.Spec.Volumes)
	}
}

// TestMakeClaims: claims are made before their member, one that is there stays as it is, and one that is being deleted is waited for.
func TestMakeClaims(t *testing.T) {
	set := claiming()
	there := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-0", Annotations: map[string]string{"is": "old"}}}
	kube, events := fake.NewClientset(there), record.NewFakeRecorder(10)
	known := informers.NewSharedInformerFactory(kube, 0)
	c, err := New(Config{Client: kube, Events: events, Sets: known.Apps().V1().StatefulSets(), Pods: known.Core().V1().Pods(),
		Revisions: known.Apps().V1().ControllerRevisions(), Claims: known.Core().V1().PersistentVolumeClaims(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.makeClaims(t.Context(), set, newPod(set, &set.Spec.Template, "r", 0)); err != nil {
		t.Fatal(err)
	}
	list, err := kube.CoreV1().PersistentVolumeClaims("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"data-web-0", "log-web-0"}) {
		t.Errorf("claims %v", names)
	}
	if kept, err := kube.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "data-web-0", metav1.GetOptions{}); err != nil || kept.Annotations["is"] != "old" {
		t.Errorf("the claim that was there is %v, %v", kept, err)
	}
	if made := claims(set, 0)[0]; !maps.Equal(made.Labels, map[string]string{"of": "data", "app": "a"}) || len(set.Spec.VolumeClaimTemplates[0].Labels) != 1 {
		t.Errorf("labels %v, those of the template %v", made.Labels, set.Spec.VolumeClaimTemplates[0].Labels)
	}
	if told := <-events.Events; told != "Normal SuccessfulCreate create Claim log-web-0 Pod web-0 in StatefulSet web success" {
		t.Errorf("told %q", told)
	}

	going := there.DeepCopy()
	going.Name, going.Finalizers, going.DeletionTimestamp = "data-web-1", []string{"example.com/hold"}, &metav1.Time{}
	if err := kube.Tracker().Add(going); err != nil {
		t.Fatal(err)
	}
	if err := c.makeClaims(t.Context(), set, newPod(set, &set.Spec.Template, "r", 1)); err == nil || !strings.Contains(err.Error(), "pvc data-web-1 is being deleted") {
		t.Errorf("with a claim that is being deleted: %v", err)
	}
	if told := <-events.Events; told != "Normal SuccessfulCreate create Claim log-web-1 Pod web-1 in StatefulSet web success" {
		t.Errorf("told %q", told)
	}

	kube.PrependReactor("create", "persistentvolumeclaims", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no room") })
	if err := c.makeClaims(t.Context(), set, newPod(set, &set.Spec.Template, "r", 2)); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a claim that cannot be made: %v", err)
	}
	if told := <-events.Events; told != "Warning FailedCreate create Claim data-web-2 for Pod web-2 in StatefulSet web failed error: no room" {
		t.Errorf("told %q", told)
	}
}
