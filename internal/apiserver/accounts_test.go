package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodsGetServiceAccounts: what admission gives a pod.
func TestPodsGetServiceAccounts(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c, ctx := i.admin(t), t.Context()
	const mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	no, yes := false, true
	for _, sa := range []corev1.ServiceAccount{
		{ObjectMeta: metav1.ObjectMeta{Name: "puller"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "silent"}, AutomountServiceAccountToken: &no},
	} {
		if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx, &sa, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tokenOf := func(p *corev1.Pod) *corev1.Volume {
		at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") })
		if at < 0 {
			return nil
		}
		return &p.Spec.Volumes[at]
	}
	t.Run("default", func(t *testing.T) {
		p := barePod(t, c, "plain", func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "init", Image: "i"}}
			s.Containers = append(s.Containers, corev1.Container{Name: "own", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: mountPath}}})
			s.Volumes = []corev1.Volume{{Name: "mine"}}
		})
		v := tokenOf(p)
		if p.Spec.ServiceAccountName != "default" || p.Spec.DeprecatedServiceAccount != "default" || v == nil || len(v.Name) != len("kube-api-access-")+5 || len(p.Spec.ImagePullSecrets) != 0 {
			t.Fatalf("%+v", p.Spec)
		}
		src := v.Projected
		if *src.DefaultMode != 0o644 || len(src.Sources) != 3 || *src.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 || src.Sources[0].ServiceAccountToken.Path != "token" ||
			src.Sources[1].ConfigMap.Name != "kube-root-ca.crt" || src.Sources[2].DownwardAPI.Items[0].FieldRef.FieldPath != "metadata.namespace" {
			t.Errorf("volume %+v", src)
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			m := c.VolumeMounts[len(c.VolumeMounts)-1]
			if want := c.Name != "own"; (m.Name == v.Name) != want || m.MountPath != mountPath || len(c.VolumeMounts) != 1 || want != m.ReadOnly {
				t.Errorf("container %s mounts %+v", c.Name, c.VolumeMounts)
			}
		}
	})
	t.Run("everybody mounts their own", func(t *testing.T) {
		p := barePod(t, c, "mounted", func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "mine", MountPath: mountPath}}
			s.Volumes = []corev1.Volume{{Name: "mine"}}
		})
		if v := tokenOf(p); v != nil {
			t.Errorf("a volume that nobody mounts: %+v", v)
		}
	})
	t.Run("the volume is there", func(t *testing.T) {
		p := barePod(t, c, "there", func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "kube-api-access-mine"}} })
		if len(p.Spec.Volumes) != 1 || p.Spec.Containers[0].VolumeMounts[0].Name != "kube-api-access-mine" {
			t.Errorf("%+v", p.Spec)
		}
	})
	t.Run("pull secrets", func(t *testing.T) {
		p := barePod(t, c, "pulls", func(s *corev1.PodSpec) { s.DeprecatedServiceAccount = "puller" })
		if p.Spec.ServiceAccountName != "puller" || len(p.Spec.ImagePullSecrets) != 1 || p.Spec.ImagePullSecrets[0].Name != "registry" {
			t.Errorf("%+v", p.Spec)
		}
		p = barePod(t, c, "pulls-own", func(s *corev1.PodSpec) {
			s.ServiceAccountName, s.ImagePullSecrets = "puller", []corev1.LocalObjectReference{{Name: "mine"}}
		})
		if len(p.Spec.ImagePullSecrets) != 1 || p.Spec.ImagePullSecrets[0].Name != "mine" {
			t.Errorf("%+v", p.Spec.ImagePullSecrets)
		}
	})
	t.Run("automount", func(t *testing.T) {
		for _, tc := range []struct {
			name, account string
			pod           *bool
			want          bool
		}{{"a", "silent", nil, false}, {"b", "silent", &yes, true}, {"c", "default", &no, false}, {"d", "default", nil, true}} {
			p := barePod(t, c, tc.name, func(s *corev1.PodSpec) { s.ServiceAccountName, s.AutomountServiceAccountToken = tc.account, tc.pod })
			if got := tokenOf(p) != nil; got != tc.want {
				t.Errorf("account %s, pod %v: a token: %v, want %v", tc.account, tc.pod, got, tc.want)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		for name, tc := range map[string]struct {
			change func(p *corev1.Pod)
			want   string
		}{
			"no such account": {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "nobody" },
				`pods "x" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found`},
			"a mirror with an account": {func(p *corev1.Pod) {
				p.Spec.NodeName, p.Annotations = "n", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				p.Spec.ServiceAccountName = "default"
			}, "a mirror pod may not reference service accounts"},
			"a mirror with a secret": {func(p *corev1.Pod) {
				p.Spec.NodeName, p.Annotations = "n", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
			}, "a mirror pod may not reference secrets"},
		} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			tc.change(p)
			if _, err := c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
	})
	t.Run("at once after its namespace", func(t *testing.T) {
		for _, ns := range []string{"first", "second", "third"} {
			if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if _, err := c.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}
