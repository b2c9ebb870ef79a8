package admission

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
)

// Certificates says who may do what with certificate signing requests: who may write the subresource approval must have the verb `approve` for the
// request's signer, who writes a certificate or a condition into the status the verb `sign`. No request makes anybody an administrator. (Upstream's plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction.)
type Certificates struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = Certificates{}

var (
	requests = schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}
	signers  = schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}
)

// Handles implements admission.Interface.
func (Certificates) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (c Certificates) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != requests {
		return nil
	}
	request, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected a CertificateSigningRequest, found %T", a.GetObject()))
	}
	old, _ := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	switch {
	case a.GetOperation() == admission.Create && a.GetSubresource() == "":
		return subject(a, request)
	case a.GetOperation() == admission.Update && a.GetSubresource() == "approval" && old != nil:
		return c.may(ctx, a, "approve", old.Spec.SignerName)
	case a.GetOperation() == admission.Update && a.GetSubresource() == "status" && old != nil && signs(request, old):
		return c.may(ctx, a, "sign", old.Spec.SignerName)
	}
	return nil
}

// signs reports whether an update of the status is a signer's: a certificate, that there will be none, or whatever else a condition says of it.
func signs(r, old *certificatesv1.CertificateSigningRequest) bool {
	return !bytes.Equal(r.Status.Certificate, old.Status.Certificate) || !apiequality.Semantic.DeepEqual(r.Status.Conditions, old.Status.Conditions)
}

// may asks for a verb on a signer: DOMAIN/PATH, or all of a domain, DOMAIN/*.
func (c Certificates) may(ctx context.Context, a admission.Attributes, verb, signer string) error {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := c.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: verb, Name: name, APIGroup: signers.Group, APIVersion: "*", Resource: signers.Resource, ResourceRequest: true,
		})
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("may %q %s for the signer %q: %w", a.GetUserInfo().GetName(), verb, signer, err))
		}
		if decision == authorizer.DecisionAllow {
			return nil
		}
	}
	return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", verb, signer))
}

// subject checks for whom a certificate is asked.
func subject(a admission.Attributes, r *certificatesv1.CertificateSigningRequest) error {
	parsed, err := certificatesigningrequest.Parse(r.Spec.Request)
	if err != nil {
		return nil // the resource's own validation has the words
	}
	if r.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName && slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", r.Spec.SignerName, user.SystemPrivilegedGroup))
	}
	return nil
}
