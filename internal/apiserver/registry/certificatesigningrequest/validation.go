package certificatesigningrequest

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// minExpiration is the shortest time that can be asked for, in seconds (certificates.k8s.io/v1, expirationSeconds).
const minExpiration = 600

// legacyUnknown is the signer of v1beta1's requests that named none.
const legacyUnknown = "kubernetes.io/legacy-unknown"

func usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
		certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
		certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
		certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	}
}

func validate(r *request) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if _, err := Parse(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(spec.Child("usages"), "must say what the key is for"))
	}
	seen := map[certificatesv1.KeyUsage]bool{}
	for i, usage := range r.Spec.Usages {
		path := spec.Child("usages").Index(i)
		if !slices.Contains(usages(), usage) {
			errs = append(errs, field.NotSupported(path, usage, usages()))
		}
		if seen[usage] {
			errs = append(errs, field.Duplicate(path, usage))
		}
		seen[usage] = true
	}
	errs = append(errs, validateSigner(r.Spec.SignerName, spec.Child("signerName"))...)
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minExpiration {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, fmt.Sprintf("may not specify a duration less than %d seconds (10 minutes)", minExpiration)))
	}
	return append(errs, validateConditions(r)...)
}

// Parse reads one request in PEM and checks that whoever made it has the key.
func Parse(raw []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("PEM block type must be CERTIFICATE REQUEST")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("must be one PEM block, and nothing after it")
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return req, req.CheckSignature()
}

// validateSigner checks a name of the form DOMAIN/PATH.
func validateSigner(name string, path *field.Path) field.ErrorList {
	if name == legacyUnknown {
		return field.ErrorList{field.Invalid(path, name, "the legacy signerName is not allowed via this API version")}
	}
	return validation.SignerName(name, path)
}

func validateConditions(r *request) (errs field.ErrorList) {
	path := field.NewPath("status", "conditions")
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		switch {
		case c.Type == "":
			errs = append(errs, field.Required(at.Child("type"), ""))
		case seen[c.Type]:
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
		final := decides(c.Type) || c.Type == certificatesv1.CertificateFailed
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case final && c.Status != corev1.ConditionTrue:
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []corev1.ConditionStatus{corev1.ConditionTrue}))
		case !final && !slices.Contains([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}, c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}))
		}
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		errs = append(errs, field.Invalid(path, certificatesv1.CertificateDenied, "Approved and Denied conditions are mutually exclusive"))
	}
	return errs
}

// kept checks that no condition of the given types that old has is gone, since a decision is final.
func kept(r, old *request, types ...certificatesv1.RequestConditionType) (errs field.ErrorList) {
	for _, t := range types {
		if find(old, t) != nil && find(r, t) == nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	return errs
}

func validateApproval(r, old *request) field.ErrorList {
	errs := kept(r, old, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)
	return append(errs, validateConditions(r)...)
}

func validateStatus(r, old *request) field.ErrorList {
	errs := kept(r, old, certificatesv1.CertificateFailed)
	path := field.NewPath("status", "certificate")
	if len(old.Status.Certificate) > 0 && !apiequality.Semantic.DeepEqual(r.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(path, "updates may not modify a set certificate"))
	}
	if len(r.Status.Certificate) > 0 {
		if err := certificates(r.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(path, "<certificate data>", err.Error()))
		}
	}
	return append(errs, validateConditions(r)...)
}

// certificates checks a chain in PEM: at least one block, each a certificate without headers.
func certificates(raw []byte) error {
	n := 0
	for {
		block, rest := pem.Decode(raw)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return fmt.Errorf("no PEM block headers are permitted")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		n++
		raw = rest
	}
	if n == 0 {
		return fmt.Errorf("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
