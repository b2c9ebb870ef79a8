package admission

import (
	"context"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Whatever somebody writes into the status of a request for a certificate, but nothing new, is for who may sign.
func TestWhoWritesTheStatusOfARequest(t *testing.T) {
	type condition = certificatesv1.CertificateSigningRequestCondition
	with := func(certificate string, conditions ...condition) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/signer"},
			Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate), Conditions: conditions},
		}
	}
	approved, failed := condition{Type: certificatesv1.CertificateApproved, Status: "True"}, condition{Type: certificatesv1.CertificateFailed, Status: "True"}
	other := func(message string) condition {
		return condition{Type: "example.com/seen", Status: "True", Message: message}
	}
	for name, tc := range map[string]struct {
		now, old *certificatesv1.CertificateSigningRequest
		signs    bool
	}{
		"nothing": {with("", approved), with("", approved), false},
		"a label": {func() *certificatesv1.CertificateSigningRequest {
			r := with("", approved)
			r.Labels = map[string]string{"a": "b"}
			return r
		}(), with("", approved), false},
		"a certificate":            {with("c", approved), with("", approved), true},
		"that there will be none":  {with("", approved, failed), with("", approved), true},
		"another condition":        {with("", approved, other("")), with("", approved), true},
		"what a condition says":    {with("", approved, other("b")), with("", approved, other("a")), true},
		"a condition is no more":   {with("", approved), with("", approved, other("a")), true},
		"that it will be one then": {with("", approved), with("", approved, failed), true},
	} {
		for who, may := range map[string]string{"nobody": "", "the signer": "example.com/signer", "of all of the domain": "example.com/*", "another signer": "example.com/other"} {
			c := Certificates{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "sign" && a.GetResource() == "signers" && a.GetName() == may {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})}
			a := admission.NewAttributesRecord(tc.now, tc.old, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), "", "r",
				certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "status", admission.Update, &metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "joe"})
			err := c.Validate(t.Context(), a, nil)
			if refused := tc.signs && (may == "" || may == "example.com/other"); refused != apierrors.IsForbidden(err) || !refused && err != nil {
				t.Errorf("%s, by %s: %v", name, who, err)
			}
		}
	}
}

// signerOnly lets a verb be done with one signer, or with all of a domain.
func signerOnly(verb, name string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == verb && a.GetAPIGroup() == "certificates.k8s.io" && a.GetResource() == "signers" && a.GetName() == name {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// What is to be trusted of a signer is for who may attest for it, and what is nobody's for anybody.
func TestWhoWritesTrustBundles(t *testing.T) {
	bundle := func(signer, text string, change func(*certificatesv1.ClusterTrustBundle)) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
		if change != nil {
			change(b)
		}
		return b
	}
	const signer = "example.com/signer"
	for name, tc := range map[string]struct {
		now, old *certificatesv1.ClusterTrustBundle
		attests  bool
	}{
		"nobody's":             {bundle("", "a", nil), nil, false},
		"a signer's":           {bundle(signer, "a", nil), nil, true},
		"other certificates":   {bundle(signer, "b", nil), bundle(signer, "a", nil), true},
		"a label":              {bundle(signer, "a", func(b *certificatesv1.ClusterTrustBundle) { b.Labels = map[string]string{"a": "b"} }), bundle(signer, "a", nil), true},
		"nothing":              {bundle(signer, "a", nil), bundle(signer, "a", nil), false},
		"an owner is gone":     {bundle(signer, "a", nil), bundle(signer, "a", func(b *certificatesv1.ClusterTrustBundle) { b.OwnerReferences = []metav1.OwnerReference{{}} }), false},
		"a finalizer and more": {bundle(signer, "b", func(b *certificatesv1.ClusterTrustBundle) { b.Finalizers = []string{"a"} }), bundle(signer, "a", nil), true},
	} {
		for may, good := range map[string]bool{"": false, signer: true, "example.com/*": true, "example.com/other": false} {
			operation, old := admission.Create, runtime.Object(nil)
			if tc.old != nil {
				operation, old = admission.Update, tc.old
			}
			a := admission.NewAttributesRecord(tc.now, old, certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), "", "b",
				certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles"), "", operation, nil, false, &user.DefaultInfo{Name: "joe"})
			err := Certificates{Authorizer: signerOnly("attest", may)}.Validate(t.Context(), a, nil)
			if refused := tc.attests && !good; refused != apierrors.IsForbidden(err) || !refused && err != nil {
				t.Errorf("%s, by who may attest for %q: %v", name, may, err)
			}
			if err != nil && !strings.Contains(err.Error(), `user not permitted to attest for signerName "example.com/signer"`) {
				t.Error(err)
			}
		}
	}
}

// The status of a request for a pod's certificate is for who may sign.
func TestWhoAnswersForPods(t *testing.T) {
	with := func(chain string) *certificatesv1.PodCertificateRequest {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/signer"},
			Status: certificatesv1.PodCertificateRequestStatus{CertificateChain: chain}}
	}
	for _, tc := range []struct {
		now, sub, may string
		refused       bool
	}{
		{"c", "status", "", true}, {"c", "status", "example.com/signer", false}, {"c", "status", "example.com/*", false}, {"c", "status", "example.com/other", true},
		{"", "status", "", false}, {"c", "", "", false},
	} {
		a := admission.NewAttributesRecord(with(tc.now), with(""), certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), "ns", "r",
			certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), tc.sub, admission.Update, nil, false, &user.DefaultInfo{Name: "joe"})
		err := Certificates{Authorizer: signerOnly("sign", tc.may)}.Validate(t.Context(), a, nil)
		if tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
