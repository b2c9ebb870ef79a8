package podcertificaterequest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

const (
	// maxRequest and maxChain bound what is in a request, in bytes.
	maxRequest = 10 * 1024
	maxChain   = 100 * 1024
	// maxUID bounds the UIDs that are not looked up here, in characters.
	maxUID = 128
)

func validate(r *request) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validation.SignerName(r.Spec.SignerName, spec.Child("signerName"))
	errs = append(errs, validation.UserAnnotations(r.Spec.UnverifiedUserAnnotations, spec.Child("unverifiedUserAnnotations"))...)
	for _, of := range []struct{ what, name, uid string }{
		{"pod", r.Spec.PodName, string(r.Spec.PodUID)},
		{"serviceAccount", r.Spec.ServiceAccountName, string(r.Spec.ServiceAccountUID)},
		{"node", string(r.Spec.NodeName), string(r.Spec.NodeUID)},
	} {
		for _, message := range apivalidation.NameIsDNSSubdomain(of.name, false) {
			errs = append(errs, field.Invalid(spec.Child(of.what+"Name"), of.name, message))
		}
		at := spec.Child(of.what + "UID")
		if of.uid == "" {
			errs = append(errs, field.Invalid(at, of.uid, "must not be empty"))
		}
		if len(of.uid) > maxUID {
			errs = append(errs, field.TooLong(at, of.uid, maxUID))
		}
	}
	at, most := spec.Child("maxExpirationSeconds"), validation.MaxCertificateSeconds(r.Spec.SignerName)
	if s := r.Spec.MaxExpirationSeconds; s == nil {
		errs = append(errs, field.Required(at, "must be set"))
	} else if *s < validation.MinCertificateSeconds || *s > most {
		errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("must be in the range [%d, %d]", validation.MinCertificateSeconds, most)))
	}
	if len(r.Spec.StubPKCS10Request) == 0 {
		return append(errs, field.Required(spec.Child("stubPKCS10Request"), ""))
	}
	return append(errs, validateProof(r.Spec.StubPKCS10Request)...)
}

// validateProof checks that a request shows that who asks has the key, and that the key is of a kind that is good enough. What else it says nobody reads.
func validateProof(raw []byte) field.ErrorList {
	at := field.NewPath("spec", "stubPKCS10Request")
	if len(raw) > maxRequest {
		return field.ErrorList{field.TooLong(at, "", maxRequest)}
	}
	parsed, err := x509.ParseCertificateRequest(raw)
	if err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	switch key := parsed.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return field.ErrorList{field.Invalid(at, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")}
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")}
		}
	default:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")}
	}
	if err := parsed.CheckSignature(); err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}
