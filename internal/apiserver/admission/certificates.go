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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
)

// Certificates says who may do what with requests for certificates and with trust bundles, by verbs on the resource `signers`: whoever writes the subresource
// approval of a certificate signing request must have the verb `approve` for the request's signer; who writes a certificate or a condition into its status, or into that of
// a pod certificate request, the verb `sign`; who writes a trust bundle of a signer the verb `attest`. No request makes anybody an administrator. (Upstream's plugins CertificateApproval, CertificateSigning,
// CertificateSubjectRestriction and ClusterTrustBundleAttest, and the status strategy of podcertificaterequests.)
type Certificates struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = Certificates{}

// signers is what the verbs are for. There are no such objects.
var signers = certificatesv1.Resource("signers")

// Handles implements admission.Interface.
func (Certificates) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (c Certificates) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch a.GetResource().GroupResource() {
	case certificatesv1.Resource("certificatesigningrequests"):
		return c.request(ctx, a)
	case certificatesv1.Resource("podcertificaterequests"):
		return c.ofPod(ctx, a)
	case certificatesv1.Resource("clustertrustbundles"):
		return c.bundle(ctx, a)
	}
	return nil
}

func (c Certificates) request(ctx context.Context, a admission.Attributes) error {
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

// ofPod is about the status of a request for a pod's certificate, which the signer writes.
func (c Certificates) ofPod(ctx context.Context, a admission.Attributes) error {
	request, _ := a.GetObject().(*certificatesv1.PodCertificateRequest)
	old, _ := a.GetOldObject().(*certificatesv1.PodCertificateRequest)
	if a.GetSubresource() != "status" || request == nil || old == nil || apiequality.Semantic.DeepEqual(request.Status, old.Status) {
		return nil
	}
	signer := old.Spec.SignerName
	allowed, err := c.allowed(ctx, a, "sign", signer)
	if allowed || err != nil {
		return err
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), old.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", a.GetUserInfo().GetName(), signer)),
	})
}

// bundle is about a signer's trust bundle. That the signer of a bundle changes is refused elsewhere, so that the new one is as good as the old.
func (c Certificates) bundle(ctx context.Context, a admission.Attributes) error {
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.GetObject()))
	}
	if old, ok := a.GetOldObject().(*certificatesv1.ClusterTrustBundle); ok && onlyOwnersDiffer(bundle, old) {
		return nil
	}
	signer := bundle.Spec.SignerName
	if signer == "" {
		return nil
	}
	allowed, err := c.allowed(ctx, a, "attest", signer)
	if allowed || err != nil {
		return err
	}
	return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
}

// onlyOwnersDiffer says that an update is one of a garbage collector, or writes what was there.
func onlyOwnersDiffer(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	was := old.DeepCopy()
	was.OwnerReferences, was.Finalizers, was.ManagedFields, was.ResourceVersion = bundle.OwnerReferences, bundle.Finalizers, bundle.ManagedFields, bundle.ResourceVersion
	return apiequality.Semantic.DeepEqual(bundle, was)
}

// signs reports whether an update of the status is a signer's: a certificate, that there will be none, or whatever else a condition says of it.
func signs(r, old *certificatesv1.CertificateSigningRequest) bool {
	return !bytes.Equal(r.Status.Certificate, old.Status.Certificate) || !apiequality.Semantic.DeepEqual(r.Status.Conditions, old.Status.Conditions)
}

// may asks for a verb on a signer.
func (c Certificates) may(ctx context.Context, a admission.Attributes, verb, signer string) error {
	allowed, err := c.allowed(ctx, a, verb, signer)
	if allowed || err != nil {
		return err
	}
	return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", verb, signer))
}

// allowed says whether whoever asks has a verb on a signer: DOMAIN/PATH, or all of a domain, DOMAIN/*.
func (c Certificates) allowed(ctx context.Context, a admission.Attributes, verb, signer string) (bool, error) {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := c.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: verb, Name: name, APIGroup: signers.Group, APIVersion: "*", Resource: signers.Resource, ResourceRequest: true,
		})
		if err != nil {
			return false, apierrors.NewInternalError(fmt.Errorf("may %q %s for the signer %q: %w", a.GetUserInfo().GetName(), verb, signer, err))
		}
		if decision == authorizer.DecisionAllow {
			return true, nil
		}
	}
	return false, nil
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
