package pod

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/defaults"
)

// validPod is a pod with its defaults set that has a part of each kind that a change may be about.
func validPod() *corev1.Pod {
	one := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "busybox:1"}},
			Containers: []corev1.Container{{
				Name: "web", Image: "registry:5000/web:1", Command: []string{"web"},
				Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes:     []corev1.Volume{{Name: "scratch"}},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &one}},
		},
	}
	defaults.Pod(pod)
	return pod
}

// summary writes errors as "path: type", which is what the tables compare: words may get better.
func summary(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Field+": "+string(err.Type))
	}
	return list
}

func TestValidatePodUpdate(t *testing.T) {
	five, ten := int64(5), int64(10)
	for name, tc := range map[string]struct {
		old, change func(*corev1.Pod)
		want        []string
	}{
		"nothing":             {nil, func(*corev1.Pod) {}, nil},
		"labels":              {nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, nil},
		"bad label":           {nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b c"} }, []string{"metadata.labels: FieldValueInvalid"}},
		"image":               {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image, p.Spec.InitContainers[0].Image = "x", "y" }, nil},
		"no image":            {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, []string{"spec.containers[0].image: FieldValueRequired"}},
		"command":             {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, []string{"spec.containers: FieldValueForbidden"}},
		"container added":     {nil, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "n"}) }, []string{"spec.containers: FieldValueForbidden"}},
		"node":                {nil, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, []string{"spec.nodeName: FieldValueForbidden"}},
		"restart policy":      {nil, func(p *corev1.Pod) { p.Spec.RestartPolicy = "Never" }, []string{"spec.restartPolicy: FieldValueForbidden"}},
		"deadline set":        {nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, nil},
		"deadline nearer":     {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, nil},
		"deadline farther":    {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"deadline taken away": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"toleration added": {nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}, nil},
		"toleration seconds": {nil, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = &ten }, nil},
		"toleration dropped": {nil, func(p *corev1.Pod) { p.Spec.Tolerations = nil }, []string{"spec.tolerations: FieldValueForbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			if tc.old != nil {
				tc.old(old)
			}
			pod := old.DeepCopy()
			tc.change(pod)
			errs := validatePodUpdate(pod, old)
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}

func TestValidateStatusUpdate(t *testing.T) {
	ended := func(code int32) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}}
	}
	again := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "web", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	for name, tc := range map[string]struct {
		policy   corev1.RestartPolicy
		old, new corev1.PodStatus
		want     []string
	}{
		"running":          {corev1.RestartPolicyAlways, corev1.PodStatus{}, again, nil},
		"phase":            {corev1.RestartPolicyAlways, corev1.PodStatus{}, corev1.PodStatus{Phase: "Fine"}, []string{"status.phase: FieldValueNotSupported"}},
		"quality":          {corev1.RestartPolicyAlways, corev1.PodStatus{QOSClass: "Burstable"}, corev1.PodStatus{QOSClass: "Guaranteed"}, []string{"status.qosClass: FieldValueInvalid"}},
		"address":          {corev1.RestartPolicyAlways, corev1.PodStatus{}, corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "here"}}}, []string{"status.podIPs[0]: FieldValueInvalid"}},
		"restart":          {corev1.RestartPolicyAlways, ended(0), again, nil},
		"never":            {corev1.RestartPolicyNever, ended(1), again, []string{"status.containerStatuses[0].state: FieldValueForbidden"}},
		"after a failure":  {corev1.RestartPolicyOnFailure, ended(1), again, nil},
		"after no failure": {corev1.RestartPolicyOnFailure, ended(0), again, []string{"status.containerStatuses[0].state: FieldValueForbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			old.Spec.RestartPolicy = tc.policy
			pod := old.DeepCopy()
			old.Status, pod.Status = tc.old, tc.new
			errs := validateStatusUpdate(pod, old)
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}
