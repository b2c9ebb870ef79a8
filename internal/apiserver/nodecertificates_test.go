package apiserver_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// agentAsks: an agent asks for certificates of its own pods, as what they are, of signers whom they name.
func agentAsks(t *testing.T, admin, agent kubernetes.Interface, own *corev1.Node) {
	ctx := t.Context()
	account(t, admin, "certified")
	sa, err := admin.CoreV1().ServiceAccounts("default").Get(ctx, "certified", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	with := func(node string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.NodeName, s.ServiceAccountName = node, "certified"
			s.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: "ED25519", KeyPath: "key"}},
			}}}}}
		}
	}
	mine, others := barePod(t, admin, "certified", with("n1")), barePod(t, admin, "certified-elsewhere", with("n2"))
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := agent.CertificatesV1().PodCertificateRequests("default")
	ask := func(change func(*certificatesv1.PodCertificateRequestSpec)) (*certificatesv1.PodCertificateRequest, error) {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "req-"}, Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", PodName: mine.Name, PodUID: mine.UID, ServiceAccountName: sa.Name, ServiceAccountUID: sa.UID,
			NodeName: "n1", NodeUID: own.UID, StubPKCS10Request: proof,
		}}
		if change != nil {
			change(&r.Spec)
		}
		return requests.Create(ctx, r, metav1.CreateOptions{})
	}
	made, err := ask(nil)
	if err != nil {
		t.Fatal(err)
	}
	if *made.Spec.MaxExpirationSeconds != 24*60*60 {
		t.Errorf("%+v", made.Spec)
	}
	if _, err := requests.Get(ctx, made.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := requests.Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v, want NotFound", err)
	}
	if list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1,spec.podName=certified"}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := agent.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=example.com/signer"}); err != nil {
		t.Error(err)
	}
	set := func(f func(*certificatesv1.PodCertificateRequestSpec)) error { _, err := ask(f); return err }
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"all requests":   {second(requests.List(ctx, metav1.ListOptions{})), "with nodeName field selector"},
		"the status":     {second(requests.UpdateStatus(ctx, made, metav1.UpdateOptions{})), "status subresource"},
		"its end":        {requests.Delete(ctx, made.Name, metav1.DeleteOptions{}), "nodes may not delete podcertificaterequests"},
		"another node's": {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }), `NodeName="n2", which is not the requesting node "n1"`},
		"an older node":  {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "x" }), "inconsistent with the running node"},
		"an older pod":   {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "x" }), `contains pod UID ("x") which differs from running pod`},
		"another node's pod": {set(func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName, s.PodUID = others.Name, others.UID
		}), "is not running on node"},
		"another account":  {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "mine" }), "differs from running pod"},
		"an older account": {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "x" }), "differs from the running service account"},
		"another signer":   {set(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/other" }), `does not mount a podCertificate projected volume for signer "example.com/other"`},
	} {
		if !apierrors.IsForbidden(tc.err) || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want Forbidden, %q", name, tc.err, tc.want)
		}
	}
	if err := set(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "nobody" }); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v, want NotFound", err)
	}
	agentMayAsk(t, admin, func() error {
		return set(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/other" })
	})
}

// agentMayAsk: with the verb for it an agent asks a signer whom no volume of the pod names.
func agentMayAsk(t *testing.T, admin kubernetes.Interface, ask func() error) {
	ctx, name := t.Context(), metav1.ObjectMeta{Name: "asks"}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"request-serviceaccounts-podcertificate-signer"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"example.com:other"}, ResourceNames: []string{"certified"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: name,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "asks"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent may ask another signer", func() bool { return ask() == nil })
}
