package podcertificaterequest

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What holds for the times of a certificate (certificates.k8s.io/v1, PodCertificateRequestStatus).
const (
	shortest = time.Hour
	// skew is how far the clocks of the signer and of the API server may be apart, refreshRoom how far a renewal is from both ends of the certificate.
	skew        = 5 * time.Minute
	refreshRoom = 10 * time.Minute
)

var (
	statusPath  = field.NewPath("status")
	chainPath   = statusPath.Child("certificateChain")
	beginPath   = statusPath.Child("notBefore")
	endPath     = statusPath.Child("notAfter")
	refreshPath = statusPath.Child("beginRefreshAt")
)

// validateStatus lets a status be written once: that the certificate is issued, or that there will be none.
func validateStatus(r, old *request, now time.Time) field.ErrorList {
	if errs := validateConditions(r.Status.Conditions); len(errs) > 0 {
		return errs
	}
	differs := func(want certificatesv1.PodCertificateRequestStatus, why string) field.ErrorList {
		if apiequality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(statusPath, field.OmitValueType{}, why)}
	}
	if decision(old) != nil {
		return differs(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	}
	switch c := decision(r); {
	case c == nil:
		return differs(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	case c.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r, now)
	default:
		return differs(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
}

func validateConditions(all []metav1.Condition) (errs field.ErrorList) {
	types := []string{
		certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed,
	}
	known := 0
	for i, c := range all {
		at := statusPath.Child("conditions").Index(i)
		switch c.Type {
		case types[0], types[1], types[2]:
			if known++; known > 1 {
				errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
			}
			if c.Status != metav1.ConditionTrue {
				errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, types))
		}
	}
	return append(errs, metav1validation.ValidateConditions(all, statusPath.Child("conditions"))...)
}

// validateIssued checks what a signer has issued.
func validateIssued(r *request, now time.Time) field.ErrorList {
	if len(r.Status.CertificateChain) > maxChain {
		return field.ErrorList{field.TooLong(chainPath, "", maxChain)}
	}
	leaf, errs := parseChain(r.Status.CertificateChain)
	if leaf == nil {
		return errs
	}
	if errs = append(errs, validateNames(leaf)...); len(errs) > 0 {
		return errs
	}
	if asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request); err != nil || !sameKey(asked.PublicKey, leaf.PublicKey) {
		return field.ErrorList{field.Invalid(chainPath, r.Status.CertificateChain, "leaf certificate was not issued to the requested public key")}
	}
	return validateTimes(r, leaf, now)
}

// parseChain reads a chain of certificates. Where it is none it has no leaf. That one certificate vouches for the next is for those who trust the root to see.
func parseChain(text string) (leaf *x509.Certificate, errs field.ErrorList) {
	no := func(why string) (*x509.Certificate, field.ErrorList) {
		return nil, field.ErrorList{field.Invalid(chainPath, text, why)}
	}
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return no("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return no("leaf certificate does not parse as valid X.509")
		case err != nil:
			return no("intermediate certificate does not parse as valid X.509")
		case leaf == nil:
			leaf = cert
		}
	}
	if leaf == nil {
		return no("issued certificate chain must contain at least one certificate")
	}
	return leaf, nil
}

// validateNames is about names that libraries other than Go's stumble over.
func validateNames(leaf *x509.Certificate) (errs field.ErrorList) {
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(chainPath, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(chainPath, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(chainPath, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(chainPath, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

func sameKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// validateTimes checks that the status says what the certificate does, and that the agent has time to renew it.
func validateTimes(r *request, leaf *x509.Certificate, now time.Time) (errs field.ErrorList) {
	s := &r.Status
	if s.NotBefore == nil {
		errs = append(errs, field.Required(beginPath, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(endPath, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refreshPath, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	if len(errs) > 0 {
		return errs
	}
	begin, end, refresh := s.NotBefore.Time, s.NotAfter.Time, s.BeginRefreshAt.Time
	life, most := leaf.NotAfter.Sub(leaf.NotBefore), time.Duration(*r.Spec.MaxExpirationSeconds)*time.Second
	switch {
	case !begin.Equal(leaf.NotBefore):
		return field.ErrorList{field.Invalid(beginPath, begin, "must be set to the NotBefore time encoded in the leaf certificate")}
	case !begin.After(now.Add(-skew)) || !begin.Before(now.Add(skew)):
		return field.ErrorList{field.Invalid(beginPath, begin, "must be set to within 5 minutes of kube-apiserver's current time")}
	case !end.Equal(leaf.NotAfter):
		return field.ErrorList{field.Invalid(endPath, end, "must be set to the NotAfter time encoded in the leaf certificate")}
	case life < shortest:
		return field.ErrorList{field.Invalid(chainPath, life, "leaf certificate lifetime must be >= 1 hour")}
	case life > most:
		return field.ErrorList{field.Invalid(chainPath, life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", *r.Spec.MaxExpirationSeconds))}
	case refresh.Before(begin.Add(refreshRoom)):
		return field.ErrorList{field.Invalid(refreshPath, refresh, "must be at least 10 minutes after status.notBefore")}
	case refresh.After(end.Add(-refreshRoom)):
		return field.ErrorList{field.Invalid(refreshPath, refresh, "must be at least 10 minutes before status.notAfter")}
	}
	return nil
}
