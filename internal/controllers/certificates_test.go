package controllers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

// askedFor makes a key, and a request for a certificate of it.
func askedFor(t *testing.T, signer, name string, groups []string, usages ...certificatesv1.KeyUsage) (*certificatesv1.CertificateSigningRequest, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	if usages == nil {
		usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Usages: usages,
		},
	}, key
}

// untilRequest waits for a request to be in a state.
func untilRequest(t *testing.T, c kubernetes.Interface, name string, reached func(*certificatesv1.CertificateSigningRequest) bool) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), apitest.Timeout)
	defer cancel()
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	list, err := c.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{FieldSelector: only})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	if reached(&list.Items[0]) {
		return &list.Items[0]
	}
	w, err := c.CertificatesV1().CertificateSigningRequests().Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if r, ok := e.Object.(*certificatesv1.CertificateSigningRequest); ok && reached(r) {
			return r
		}
	}
	t.Fatalf("request %s does not get there: %+v", name, list.Items[0].Status)
	return nil
}

func isIssued(r *certificatesv1.CertificateSigningRequest) bool { return len(r.Status.Certificate) > 0 }

func hasFailed(r *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateFailed {
			return true
		}
	}
	return false
}

func approve(t *testing.T, c kubernetes.Interface, r *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	if _, err := c.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateRequests(t *testing.T) {
	a := apitest.Start(t)
	a.Control(catalog.Certificates)
	create := func(t *testing.T, r *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		made, err := a.Client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	nodes := []string{"system:nodes"}

	t.Run("an agent's client certificate works", func(t *testing.T) {
		r, key := askedFor(t, certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n9", nodes)
		seconds := int32(3600)
		r.Spec.ExpirationSeconds = &seconds
		r = untilRequest(t, a.Client, create(t, r).Name, isIssued) // the administrator may bring nodes in
		if c := r.Status.Conditions[0]; c.Type != certificatesv1.CertificateApproved || c.Reason != "AutoApproved" {
			t.Errorf("condition %+v", c)
		}
		block, _ := pem.Decode(r.Status.Certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || cert.Subject.CommonName != "system:node:n9" || cert.IsCA || cert.NotAfter.Sub(r.CreationTimestamp.Time).Hours() > 1.01 {
			t.Errorf("certificate %+v, %v", cert, err)
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		cfg := rest.AnonymousClientConfig(a.Config)
		cfg.CertData, cfg.KeyData = r.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Errorf("the new agent registers: %v", err)
		}
		other, _ := askedFor(t, certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n1", nodes)
		if _, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("it asks for the certificate of another node: %v", err)
		}
	})
	t.Run("others wait for a person", func(t *testing.T) {
		r, _ := askedFor(t, certificatesv1.KubeAPIServerClientSignerName, "joe", []string{"dev"})
		r = create(t, r)
		if r.Spec.Username != "kubernetes-admin" {
			t.Errorf("asked by %q", r.Spec.Username)
		}
		approve(t, a.Client, r)
		untilRequest(t, a.Client, r.Name, isIssued)
	})
	t.Run("what the signer does not sign", func(t *testing.T) {
		r, _ := askedFor(t, certificatesv1.KubeletServingSignerName, "system:node:n1", nodes, certificatesv1.UsageServerAuth)
		r = create(t, r)
		approve(t, a.Client, r)
		r = untilRequest(t, a.Client, r.Name, hasFailed)
		if c := r.Status.Conditions[1]; c.Reason != "SignerValidationFailure" || !strings.Contains(c.Message, "DNS or IP subjectAltName is required") {
			t.Errorf("condition %+v", c)
		}
	})
	t.Run("nobody becomes an administrator", func(t *testing.T) {
		r, _ := askedFor(t, certificatesv1.KubeAPIServerClientSignerName, "joe", []string{"system:masters"})
		if _, err := a.Client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("system:masters: %v", err)
		}
	})
	t.Run("bad input", func(t *testing.T) {
		for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
			"spec.request":           func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") },
			"spec.usages":            func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil },
			"spec.signerName":        func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "mine" },
			"spec.expirationSeconds": func(r *certificatesv1.CertificateSigningRequest) { s := int32(5); r.Spec.ExpirationSeconds = &s },
		} {
			r, _ := askedFor(t, "example.com/mine", "joe", nil)
			change(r)
			if _, err := a.Client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("a decision is final", func(t *testing.T) {
		r, _ := askedFor(t, "example.com/mine", "joe", nil)
		r = create(t, r)
		approve(t, a.Client, r)
		r, err := a.Client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), r.Name, metav1.GetOptions{})
		if err != nil || len(r.Status.Conditions) != 1 || r.Status.Conditions[0].LastUpdateTime.IsZero() {
			t.Fatalf("%+v, %v", r, err)
		}
		r.Status.Conditions = nil
		if _, err := a.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("taken back: %v", err)
		}
		// An approver may have conditions of its own, and annotations (upstream's conformance tests do).
		patch := []byte(`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}},
			{"op":"add","path":"/status/conditions/-","value":{"type":"Seen","status":"True","reason":"test"}}]`)
		r, err = a.Client.CertificatesV1().CertificateSigningRequests().Patch(t.Context(), r.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "approval")
		if err != nil || len(r.Status.Conditions) != 2 || r.Status.Conditions[1].Type != "Seen" || r.Status.Conditions[1].LastTransitionTime.IsZero() {
			t.Errorf("a condition of the approver's own: %+v, %v", r, err)
		}
		r, err = a.Client.CertificatesV1().CertificateSigningRequests().Patch(t.Context(), r.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"c":"d"}}}`), metav1.PatchOptions{}, "status")
		if err != nil || r.Annotations["a"] != "b" || r.Annotations["c"] != "d" {
			t.Errorf("annotations by approval and status: %v, %v", r.Annotations, err)
		}
	})
}
