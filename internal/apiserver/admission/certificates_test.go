package admission

import (
	"context"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
