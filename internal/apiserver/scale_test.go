package apiserver_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applyautoscaling "k8s.io/client-go/applyconfigurations/autoscaling/v1"
)

// A Scale is applied as any object is, and owns what it sets; nothing is lost or doubled when its owners are written to those of the object.
func TestScaleIsApplied(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(media, func(t *testing.T) {
			cfg := i.AdminConfig()
			cfg.ContentType = media
			sets := i.client(t, cfg).AppsV1().ReplicaSets("default")
			name := "s" + media[len(media)-4:]
			labels := map[string]string{"a": "b"}
			if _, err := sets.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
			}}, metav1.CreateOptions{FieldManager: "maker"}); err != nil {
				t.Fatal(err)
			}
			owners := func() (all []string) {
				t.Helper()
				set, err := sets.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range set.ManagedFields {
					all = append(all, f.Manager+" "+string(f.Operation)+" "+f.Subresource+" "+f.APIVersion)
				}
				slices.Sort(all)
				return all
			}
			three := applyautoscaling.Scale().WithName(name).WithSpec(applyautoscaling.ScaleSpec().WithReplicas(3))
			if _, err := sets.ApplyScale(t.Context(), name, three, metav1.ApplyOptions{FieldManager: "scaler"}); !apierrors.IsConflict(err) {
				t.Errorf("the default, too, is of who made the object: %v, want a conflict", err)
			}
			scale, err := sets.ApplyScale(t.Context(), name, three, metav1.ApplyOptions{FieldManager: "scaler", Force: true})
			if err != nil {
				t.Fatal(err)
			}
			if scale.Spec.Replicas != 3 || scale.Status.Selector != "a=b" || scale.ResourceVersion == "" {
				t.Errorf("the scale that was applied: %+v", scale)
			}
			if got, want := owners(), []string{"maker Update  apps/v1", "scaler Apply scale apps/v1"}; !slices.Equal(got, want) {
				t.Errorf("owners %q, want %q", got, want)
			}
			four := applyautoscaling.Scale().WithName(name).WithSpec(applyautoscaling.ScaleSpec().WithReplicas(4))
			if _, err := sets.ApplyScale(t.Context(), name, four, metav1.ApplyOptions{FieldManager: "other"}); !apierrors.IsConflict(err) {
				t.Errorf("two that apply different scales: %v, want a conflict", err)
			}
			set := applyapps.ReplicaSet(name, "default").WithSpec(applyapps.ReplicaSetSpec().WithReplicas(5))
			if _, err := sets.Apply(t.Context(), set, metav1.ApplyOptions{FieldManager: "other"}); !apierrors.IsConflict(err) {
				t.Errorf("who applies other replicas to the object: %v, want a conflict", err)
			}
			if _, err := sets.Apply(t.Context(), set, metav1.ApplyOptions{FieldManager: "other", Force: true}); err != nil {
				t.Fatal(err)
			}
			if got, want := owners(), []string{"maker Update  apps/v1", "other Apply  apps/v1"}; !slices.Equal(got, want) {
				t.Errorf("owners %q, want %q", got, want)
			}
			scale, err = sets.UpdateScale(t.Context(), name, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 6}},
				metav1.UpdateOptions{FieldManager: "scaler", DryRun: []string{metav1.DryRunAll}})
			if err != nil || scale.Spec.Replicas != 6 {
				t.Errorf("a trial: %+v, %v", scale, err)
			}
			if now, err := sets.GetScale(t.Context(), name, metav1.GetOptions{}); err != nil || now.Spec.Replicas != 5 {
				t.Errorf("after it: %+v, %v, want 5", now, err)
			}
		})
	}
}
