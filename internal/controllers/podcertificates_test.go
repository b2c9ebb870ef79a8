package controllers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/controllers/podcertificates"
	"monopod.dev/monopod/internal/controllers/trustbundles"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// askedForPod makes a key, and a request for a certificate of it for a pod.
func askedForPod(t *testing.T, pod *corev1.Pod, annotations map[string]string) (*certificatesv1.PodCertificateRequest, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "req-", Namespace: pod.Namespace},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: podcertificates.Signer, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: pod.Spec.ServiceAccountName, ServiceAccountUID: "u",
			NodeName: "n", NodeUID: "u", StubPKCS10Request: der, UnverifiedUserAnnotations: annotations,
		},
	}, key
}

// bundleOf waits for the one bundle of a signer.
func bundleOf(t *testing.T, c kubernetes.Interface, signer string, good func(*certificatesv1.ClusterTrustBundle) bool) *certificatesv1.ClusterTrustBundle {
	t.Helper()
	var found *certificatesv1.ClusterTrustBundle
	harness.Eventually(t, "there is one bundle of "+signer, func() (bool, string) {
		list, err := c.CertificatesV1().ClusterTrustBundles().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
		if err != nil || len(list.Items) != 1 || !good(&list.Items[0]) {
			return false, fmt.Sprint(list, err)
		}
		found = &list.Items[0]
		return true, ""
	})
	return found
}

func anyBundle(*certificatesv1.ClusterTrustBundle) bool { return true }

func TestPodCertificates(t *testing.T) {
	a := apitest.Start(t)
	stop := a.Control(catalog.PodCertificates, catalog.TrustBundles)
	ctx := t.Context()
	if _, err := a.Client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := a.Client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{
		ServiceAccountName: "web", Subdomain: "peers", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests := a.Client.CertificatesV1().PodCertificateRequests("default")
	ask := func(t *testing.T, change func(*certificatesv1.PodCertificateRequest), annotations map[string]string) (*certificatesv1.PodCertificateRequest, *ecdsa.PrivateKey) {
		t.Helper()
		r, key := askedForPod(t, pod, annotations)
		if change != nil {
			change(r)
		}
		made, err := requests.Create(ctx, r, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made, key
	}
	decided := func(t *testing.T, name string) (r *certificatesv1.PodCertificateRequest) {
		t.Helper()
		harness.Eventually(t, name+" is decided about", func() (bool, string) {
			r, err = requests.Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(r.Status.Conditions) > 0, fmt.Sprint(err)
		})
		return r
	}
	verify := func(t *testing.T, chain, trusted, name string, usage x509.ExtKeyUsage) *x509.Certificate {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(trusted))
		block, _ := pem.Decode([]byte(chain))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
		return cert
	}

	t.Run("a certificate says who the pod is", func(t *testing.T) {
		made, key := ask(t, nil, map[string]string{podcertificates.ServicesAnnotation: "web, api"})
		r := decided(t, made.Name)
		if c := r.Status.Conditions[0]; c.Type != "Issued" {
			t.Fatalf("%+v", c)
		}
		trusted := bundleOf(t, a.Client, podcertificates.Signer, anyBundle)
		cert := verify(t, r.Status.CertificateChain, trusted.Spec.TrustBundle, "web.default.svc", x509.ExtKeyUsageServerAuth)
		verify(t, r.Status.CertificateChain, trusted.Spec.TrustBundle, "web-0.peers.default.svc.cluster.local", x509.ExtKeyUsageClientAuth)
		if !key.PublicKey.Equal(cert.PublicKey) {
			t.Error("the key is another one")
		}
		if got := cert.URIs[0].String(); got != "spiffe://cluster.local/ns/default/sa/web" {
			t.Error(got)
		}
		if life := cert.NotAfter.Sub(cert.NotBefore); life != 24*time.Hour || r.Status.BeginRefreshAt.Sub(cert.NotBefore) != 16*time.Hour {
			t.Errorf("it lasts %v, and is to be renewed at %v", life, r.Status.BeginRefreshAt)
		}
		if slices.ContainsFunc(cert.DNSNames, func(n string) bool { return !strings.Contains(n, ".default.svc") }) {
			t.Errorf("names without a namespace: %v", cert.DNSNames)
		}
		// It is nothing that the API server trusts.
		serving := bundleOf(t, a.Client, trustbundles.ServingSigner, anyBundle)
		if serving.Spec.TrustBundle != string(a.Config.CAData) {
			t.Error("the bundle of the API server's signer is another one than clients have")
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(a.Config.CAData)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
			t.Error("the API server's authority vouches for a pod")
		}
	})
	t.Run("what it does not know it denies", func(t *testing.T) {
		for name, annotations := range map[string]map[string]string{
			"a key": {"example.com/a": "b"}, "a name": {podcertificates.ServicesAnnotation: "web.other"},
		} {
			made, _ := ask(t, nil, annotations)
			r := decided(t, made.Name)
			if c := r.Status.Conditions[0]; c.Type != "Denied" || c.Reason != certificatesv1.PodCertificateRequestConditionInvalidUserConfig || r.Status.CertificateChain != "" {
				t.Errorf("%s: %+v", name, r.Status)
			}
		}
	})
	t.Run("others' requests are left to them", func(t *testing.T) {
		other, _ := ask(t, func(r *certificatesv1.PodCertificateRequest) { r.Spec.SignerName = "example.com/other" }, nil)
		gone, _ := ask(t, func(r *certificatesv1.PodCertificateRequest) { r.Spec.PodUID = "another" }, nil)
		after, _ := ask(t, nil, nil)
		decided(t, after.Name)
		for _, name := range []string{other.Name, gone.Name} {
			if r, err := requests.Get(ctx, name, metav1.GetOptions{}); err != nil || len(r.Status.Conditions) > 0 {
				t.Errorf("%+v, %v", r.Status, err)
			}
		}
	})
	t.Run("a bundle that was changed or deleted is put back", func(t *testing.T) {
		bundles := a.Client.CertificatesV1().ClusterTrustBundles()
		right := bundleOf(t, a.Client, podcertificates.Signer, anyBundle)
		changed := right.DeepCopy()
		changed.Spec.TrustBundle = string(a.Config.CAData)
		if _, err := bundles.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		bundleOf(t, a.Client, podcertificates.Signer, func(b *certificatesv1.ClusterTrustBundle) bool { return b.Spec.TrustBundle == right.Spec.TrustBundle })
		if err := bundles.Delete(ctx, right.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := bundles.Create(ctx, &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "monopod.dev:pod-identity:more"}, Spec: changed.Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bundleOf(t, a.Client, podcertificates.Signer, func(b *certificatesv1.ClusterTrustBundle) bool { return b.Name == right.Name && b.UID != right.UID })
	})
	t.Run("an authority that cannot sign is replaced, and stays trusted", func(t *testing.T) {
		secrets := a.Client.CoreV1().Secrets("kube-system")
		was := bundleOf(t, a.Client, podcertificates.Signer, anyBundle).Spec.TrustBundle
		secret, err := secrets.Get(ctx, "monopod-pod-identity", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old := secret.DeepCopy()
		secret.Data["tls.key"] = []byte("broken")
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		made, _ := ask(t, nil, nil)
		r := decided(t, made.Name)
		now := bundleOf(t, a.Client, podcertificates.Signer, func(b *certificatesv1.ClusterTrustBundle) bool { return b.Spec.TrustBundle != was })
		if !strings.Contains(now.Spec.TrustBundle, was) {
			t.Error("what the former authority has signed is not trusted any more")
		}
		verify(t, r.Status.CertificateChain, now.Spec.TrustBundle, "", x509.ExtKeyUsageClientAuth)
		if secret, err := secrets.Get(ctx, "monopod-pod-identity", metav1.GetOptions{}); err != nil || string(secret.Data["former.crt"]) != string(old.Data["tls.crt"]) {
			t.Errorf("%v, %v", secret, err)
		}
	})
	t.Run("who may not sign does not", func(t *testing.T) {
		stop()
		made, _ := ask(t, nil, nil)
		made.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: "True", Reason: "No", LastTransitionTime: metav1.Now()}}
		role, subject := metav1.ObjectMeta{Name: "statuses"}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "joe"}
		if _, err := a.Client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: role, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"update"}, APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"podcertificaterequests/status"}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: role, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "statuses"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(a.Config)
		config.Impersonate.UserName = "joe"
		joe, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "his role is known", func() (bool, string) {
			_, err = joe.CertificatesV1().PodCertificateRequests("default").UpdateStatus(ctx, made, metav1.UpdateOptions{})
			return !apierrors.IsForbidden(err), fmt.Sprint(err)
		})
		if want := `User "joe" is not permitted to "sign" for signer "monopod.dev/pod-identity"`; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
}
