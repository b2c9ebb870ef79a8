package node

import (
	"context"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

type fakePods []corev1.Pod

func (f fakePods) PodsOf(_ context.Context, node, namespace string) (all []corev1.Pod, err error) {
	for _, p := range f {
		if p.Spec.NodeName == node && (namespace == "" || p.Namespace == namespace) {
			all = append(all, p)
		}
	}
	return all, nil
}

// fakeVolumes are the claims of volumes, namespace and name, by the volumes' names. The cache does not know yet whose fresh-1 is.
type fakeVolumes map[string][2]string

func (f fakeVolumes) PersistentVolume(_ context.Context, name string, fresh bool) (*corev1.PersistentVolume, error) {
	of, ok := f[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
	}
	v := &corev1.PersistentVolume{}
	if of[1] != "" && (fresh || !strings.HasPrefix(name, "fresh")) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: of[0], Name: of[1]}
	}
	return v, nil
}

// fakeCertificates are the nodes of requests, by their names. The cache does not know yet of fresh.
type fakeCertificates map[string]string

func (f fakeCertificates) PodCertificateRequest(_ context.Context, _, name string, fresh bool) (*certificatesv1.PodCertificateRequest, error) {
	node, ok := f[name]
	if !ok || name == "fresh" && !fresh {
		return nil, apierrors.NewNotFound(certificatesv1.Resource("podcertificaterequests"), name)
	}
	return &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{NodeName: types.NodeName(node)}}, nil
}

func pod(node, name, refers string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: "sa-" + refers, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull-" + refers}},
		Volumes: []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-" + refers}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm-" + refers}}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc-" + refers}}},
		},
	}}
}

func TestAuthorize(t *testing.T) {
	mirror := pod("n1", "mirror", "mirror")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	authz := NewAuthorizer(fakePods{pod("n1", "p1", "1"), pod("n2", "p2", "2"), pod("", "p3", "3"), mirror}, fakeVolumes{
		"v-1": {"ns", "pvc-1"}, "v-2": {"ns", "pvc-2"}, "v-mirror": {"ns", "pvc-mirror"}, "v-other": {"other", "pvc-1"}, "v-none": {}, "fresh-1": {"ns", "pvc-1"},
	}, fakeCertificates{"mine": "n1", "fresh": "n1", "others": "n2"})
	agent := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	for _, tc := range []struct {
		// what is "VERB /path" or "VERB group resource[/subresource] [namespace/]name [selector]"; "core" is the group without name, "-" no name.
		what string
		want bool
	}{
		{"get core secrets ns/s-1", true},
		{"get core secrets ns/pull-1", true},
		{"list core secrets ns/s-1", true},
		{"watch core secrets ns/s-1", true},
		{"get core secrets ns/s-2", false},
		{"get core secrets ns/s-3", false},
		{"get core secrets ns/s-mirror", false},
		{"get core secrets other/s-1", false},
		{"get core secrets ns/cm-1", false},
		{"list core secrets ns/-", false},
		{"list core secrets -", false},
		{"update core secrets ns/s-1", false},
		{"create core secrets ns/-", false},
		{"delete core secrets ns/s-1", false},
		{"get core configmaps ns/cm-1", true},
		{"watch core configmaps ns/cm-1", true},
		{"get core configmaps ns/cm-2", false},
		{"get core persistentvolumeclaims ns/pvc-1", true},
		{"list core persistentvolumeclaims ns/pvc-1", false},
		{"get core persistentvolumeclaims ns/pvc-2", false},
		{"get core persistentvolumes v-1", true},
		{"get core persistentvolumes fresh-1", true},
		{"get core persistentvolumes v-2", false},
		{"get core persistentvolumes v-mirror", false},
		{"get core persistentvolumes v-other", false},
		{"get core persistentvolumes v-none", false},
		{"get core persistentvolumes gone", false},
		{"list core persistentvolumes -", false},
		{"watch core persistentvolumes v-1", false},
		{"patch core persistentvolumes v-1", false},
		{"get core persistentvolumes/status v-1", false},

		{"get certificates.k8s.io clustertrustbundles any", true},
		{"watch certificates.k8s.io clustertrustbundles -", true},
		{"create certificates.k8s.io clustertrustbundles -", false},
		{"create certificates.k8s.io podcertificaterequests ns/-", true},
		{"get certificates.k8s.io podcertificaterequests ns/mine", true},
		{"get certificates.k8s.io podcertificaterequests ns/fresh", true},
		{"get certificates.k8s.io podcertificaterequests ns/gone", true},
		{"get certificates.k8s.io podcertificaterequests ns/others", false},
		{"get certificates.k8s.io podcertificaterequests/status ns/mine", false},
		{"update certificates.k8s.io podcertificaterequests/status ns/mine", false},
		{"delete certificates.k8s.io podcertificaterequests ns/mine", false},
		{"list certificates.k8s.io podcertificaterequests - spec.nodeName=n1", true},
		{"watch certificates.k8s.io podcertificaterequests ns/- spec.nodeName=n1,spec.podName=p1", true},
		{"watch certificates.k8s.io podcertificaterequests - spec.nodeName=n2", false},
		{"list certificates.k8s.io podcertificaterequests ns/-", false},

		{"create core serviceaccounts/token ns/sa-1", true},
		{"create core serviceaccounts/token ns/sa-2", false},
		{"create core serviceaccounts/token other/sa-1", false},
		{"create core serviceaccounts/token ns/sa-mirror", false},
		{"get core serviceaccounts ns/sa-1", true},
		{"get core serviceaccounts ns/sa-2", false},
		{"list core serviceaccounts ns/-", false},
		{"create core serviceaccounts ns/-", false},

		{"list core pods - spec.nodeName=n1", true},
		{"watch core pods - spec.nodeName=n1", true},
		{"watch core pods - spec.nodeName=n1,status.phase=Running", true},
		{"list core pods - spec.nodeName=n2", false},
		{"list core pods - spec.nodeName!=n1", false},
		{"list core pods -", false},
		{"get core pods ns/p1", true},
		{"get core pods ns/mirror", true},
		{"watch core pods ns/p1", true},
		{"get core pods ns/p2", false},
		{"create core pods ns/-", true}, // mirrors only: noderestriction
		{"delete core pods ns/p1", true},
		{"deletecollection core pods ns/-", false},
		{"update core pods ns/p1", false},
		{"patch core pods/status ns/p1", true},
		{"create core pods/eviction ns/p1", true},
		{"create core pods/binding ns/p1", false},
		{"create core pods/exec ns/p1", false},
		{"get core pods/log ns/p1", false},

		{"create core nodes -", true},
		{"get core nodes n1", true},
		{"watch core nodes n1", true},
		{"get core nodes n2", false},
		{"list core nodes -", false},
		{"patch core nodes n1", true},
		{"patch core nodes/status n1", true},
		{"patch core nodes/status n2", false},
		{"delete core nodes n1", false},
		{"create core nodes/proxy n1", false},

		{"create coordination.k8s.io leases kube-node-lease/-", true},
		{"update coordination.k8s.io leases kube-node-lease/n1", true},
		{"update coordination.k8s.io leases kube-node-lease/n2", false},
		{"update coordination.k8s.io leases default/n1", false},
		{"list coordination.k8s.io leases kube-node-lease/-", false},

		{"create storage.k8s.io csinodes -", true},
		{"get storage.k8s.io csinodes n1", true},
		{"patch storage.k8s.io csinodes n1", true},
		{"delete storage.k8s.io csinodes n1", true},
		{"update storage.k8s.io csinodes n2", false},
		{"list storage.k8s.io csinodes -", false},
		{"patch storage.k8s.io csinodes/status n1", false},
		{"watch storage.k8s.io csidrivers -", true},
		{"update storage.k8s.io csidrivers d", false},
		{"list storage.k8s.io storageclasses -", false},

		{"create core events ns/-", true},
		{"patch events.k8s.io events ns/e", true},
		{"list core events ns/-", false},
		{"create authentication.k8s.io tokenreviews -", true},
		{"create authorization.k8s.io subjectaccessreviews -", true},
		{"watch core services -", true},
		{"list discovery.k8s.io endpointslices -", true},
		{"watch discovery.k8s.io endpointslices -", true},
		{"update discovery.k8s.io endpointslices default/x", false},
		{"list core namespaces -", false},
		{"get /readyz", true},
		{"get /livez/etcd", true},
		{"get /metrics", false},
	} {
		if got := decide(t, authz, agent, tc.what); got != tc.want {
			t.Errorf("%s: allowed=%v, want %v", tc.what, got, tc.want)
		}
	}
	for _, who := range []user.Info{
		nil, &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"dev"}}, &user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}},
		&user.DefaultInfo{Name: "joe", Groups: []string{"system:nodes"}},
	} {
		if decide(t, authz, who, "get core nodes n1") || decide(t, authz, who, "get /readyz") {
			t.Errorf("%v is taken for an agent", who)
		}
	}
}

func decide(t *testing.T, authz authorizer.Authorizer, who user.Info, what string) bool {
	t.Helper()
	f := strings.Fields(what)
	a := authorizer.AttributesRecord{User: who, Verb: f[0]}
	if strings.HasPrefix(f[1], "/") {
		a.Path = f[1]
	} else {
		a.ResourceRequest = true
		if f[1] != "core" {
			a.APIGroup = f[1]
		}
		a.Resource, a.Subresource, _ = strings.Cut(f[2], "/")
		a.Name = f[3]
		if ns, name, ok := strings.Cut(f[3], "/"); ok {
			a.Namespace, a.Name = ns, name
		}
		if a.Name == "-" {
			a.Name = ""
		}
		if len(f) > 4 {
			a.FieldSelectorRequirements = fields.ParseSelectorOrDie(f[4]).Requirements()
		}
	}
	decision, _, err := authz.Authorize(t.Context(), a)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return decision == authorizer.DecisionAllow
}
