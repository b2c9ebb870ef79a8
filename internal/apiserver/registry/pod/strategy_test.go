package pod

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"
)

func TestSyncAddresses(t *testing.T) {
	ips := func(list ...string) (result []corev1.PodIP) {
		for _, ip := range list {
			result = append(result, corev1.PodIP{IP: ip})
		}
		return result
	}
	for name, tc := range map[string]struct {
		single string
		list   []corev1.PodIP
		want   []corev1.PodIP
	}{
		"none":           {"", nil, nil},
		"the single one": {"10.0.0.1", nil, ips("10.0.0.1")},
		"the list":       {"", ips("10.0.0.1", "fd00::1"), ips("10.0.0.1", "fd00::1")},
		"both":           {"10.0.0.1", ips("10.0.0.1", "fd00::1"), ips("10.0.0.1", "fd00::1")},
		"they differ":    {"10.0.0.2", ips("10.0.0.1", "fd00::1"), ips("10.0.0.2")},
	} {
		t.Run(name, func(t *testing.T) {
			status := corev1.PodStatus{PodIP: tc.single, PodIPs: tc.list, HostIP: tc.single}
			for _, ip := range tc.list {
				status.HostIPs = append(status.HostIPs, corev1.HostIP(ip))
			}
			syncAddresses(&status)
			if !slices.Equal(status.PodIPs, tc.want) || len(tc.want) > 0 && status.PodIP != tc.want[0].IP {
				t.Errorf("%s, %v, want %v", status.PodIP, status.PodIPs, tc.want)
			}
			if len(status.HostIPs) != len(tc.want) || len(tc.want) > 0 && status.HostIP != tc.want[0].IP {
				t.Errorf("host: %s, %v, want %v", status.HostIP, status.HostIPs, tc.want)
			}
		})
	}
}

func TestGracePeriod(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, spec int64) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &spec}, Status: corev1.PodStatus{Phase: phase}}
	}
	seconds := func(s int64) *int64 { return &s }
	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		requested *int64
		want      int64
	}{
		"the pod's":       {pod("n", corev1.PodRunning, 30), nil, 30},
		"the caller's":    {pod("n", corev1.PodRunning, 30), seconds(5), 5},
		"longer":          {pod("n", corev1.PodRunning, 30), seconds(50), 50},
		"at once":         {pod("n", corev1.PodRunning, 30), seconds(0), 0},
		"negative":        {pod("n", corev1.PodRunning, 30), seconds(-5), 1},
		"not bound":       {pod("", corev1.PodPending, 30), seconds(5), 0},
		"succeeded":       {pod("n", corev1.PodSucceeded, 30), nil, 0},
		"failed":          {pod("n", corev1.PodFailed, 30), seconds(5), 0},
		"bound, no phase": {pod("n", corev1.PodPending, 30), nil, 30},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gracePeriod(tc.pod, tc.requested); got != tc.want {
				t.Errorf("%d seconds, want %d", got, tc.want)
			}
		})
	}
}

// TestALateDecisionAboutADeletionCounts decides twice with the same options, as the library does when its cache is behind
// the store.
func TestALateDecisionAboutADeletionCounts(t *testing.T) {
	unbound, bound := validPod(), validPod()
	bound.Spec.NodeName = "n"
	for _, requested := range []*int64{nil, new(int64)} {
		options := &metav1.DeleteOptions{GracePeriodSeconds: requested}
		ctx := keepRequestedGrace(t.Context(), options)
		want := gracePeriod(bound, requested)
		for _, pod := range []*corev1.Pod{unbound, bound} {
			if !(strategy{}).CheckGracefulDelete(ctx, pod, options) {
				t.Fatal("not graceful")
			}
		}
		if got := *options.GracePeriodSeconds; got != want {
			t.Errorf("grace period %d, want %d", got, want)
		}
	}
}

// heard are the warnings of a request.
type heard []string

// AddWarning implements warning.Recorder.
func (h *heard) AddWarning(_, text string) { *h = append(*h, text) }

// An annotation for AppArmor becomes the field that has taken its place, and whoever writes it is told.
func TestAppArmorByAnnotation(t *testing.T) {
	pod := validPod()
	pod.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "web": "unconfined"}
	var told heard
	newStrategy().PrepareForCreate(warning.WithWarningRecorder(t.Context(), &told), pod)
	if sc := pod.Spec.Containers[0].SecurityContext; sc == nil || sc.AppArmorProfile == nil || sc.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined {
		t.Errorf("security context %+v", sc)
	}
	if want := `metadata.annotations[container.apparmor.security.beta.kubernetes.io/web]: deprecated since v1.30; use the "appArmorProfile" field instead`; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
	later := pod.DeepCopy()
	later.ResourceVersion, pod.ResourceVersion = "1", "1"
	later.Annotations = nil
	if errs := validatePodUpdate(later, pod); len(errs) != 1 || errs[0].Detail != "may not remove or update AppArmor annotations" {
		t.Errorf("errors %v", errs)
	}
}
