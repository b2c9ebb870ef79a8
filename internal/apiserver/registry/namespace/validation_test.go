package namespace

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestValidate(t *testing.T) {
	now := metav1.Now()
	active := func() *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", ResourceVersion: "1"},
			Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Namespace)
		want   string // empty: valid
	}{
		"valid":              {func(*corev1.Namespace) {}, ""},
		"name with dots":     {func(n *corev1.Namespace) { n.Name = "a.b" }, "metadata.name"},
		"finalizer":          {func(n *corev1.Namespace) { n.Spec.Finalizers[0] = "mine" }, "spec.finalizers[0]"},
		"finalizer of owner": {func(n *corev1.Namespace) { n.Spec.Finalizers[0] = "example.com/mine" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := active()
			tc.change(n)
			check(t, Resource().Check(n).ToAggregate(), tc.want)
		})
	}
	for name, tc := range map[string]struct {
		deletion *metav1.Time
		phase    corev1.NamespacePhase
		want     string
	}{
		"active":                    {nil, corev1.NamespaceActive, ""},
		"terminating":               {&now, corev1.NamespaceTerminating, ""},
		"terminating but not":       {nil, corev1.NamespaceTerminating, "status.phase"},
		"active though terminating": {&now, corev1.NamespaceActive, "status.phase"},
	} {
		t.Run(name, func(t *testing.T) {
			old := active()
			old.DeletionTimestamp = tc.deletion
			n := old.DeepCopy()
			n.Status.Phase = tc.phase
			check(t, validateStatusUpdate(n, old).ToAggregate(), tc.want)
		})
	}
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
