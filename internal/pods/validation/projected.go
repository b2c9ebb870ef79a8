package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateProjected is about a volume of several sources. A path that two of them name would be one source's file and not the other's.
func validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateDefaults(p.DefaultMode, p.DefaultUser, at)
	paths := map[string]bool{}
	taken := func(path string, at *field.Path) {
		if path != "" && paths[path] {
			errs = append(errs, field.Invalid(at, path, "conflicting duplicate paths"))
		}
		paths[path] = true
	}
	keys := func(items []corev1.KeyToPath, at *field.Path) {
		errs = append(errs, validateItems(items, at.Child("items"))...)
		for i := range items {
			taken(items[i].Path, at.Child("items").Index(i).Child("path"))
		}
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], at.Child("sources").Index(i)
		kinds := 0
		if s.ConfigMap != nil {
			kinds++
			errs = append(errs, validateObjectName(s.ConfigMap.Name, at.Child("configMap", "name"))...)
			keys(s.ConfigMap.Items, at.Child("configMap"))
		}
		if s.Secret != nil {
			kinds++
			errs = append(errs, validateObjectName(s.Secret.Name, at.Child("secret", "name"))...)
			keys(s.Secret.Items, at.Child("secret"))
		}
		if s.DownwardAPI != nil {
			kinds++
			items := at.Child("downwardAPI", "items")
			errs = append(errs, validateDownwardFiles(s.DownwardAPI.Items, items)...)
			for i, item := range s.DownwardAPI.Items {
				taken(item.Path, items.Index(i).Child("path"))
			}
		}
		if s.ServiceAccountToken != nil {
			kinds++
			token := at.Child("serviceAccountToken")
			errs = append(errs, validateToken(s.ServiceAccountToken, token)...)
			taken(s.ServiceAccountToken.Path, token.Child("path"))
		}
		if s.ClusterTrustBundle != nil {
			kinds++
			bundle := at.Child("clusterTrustBundle")
			errs = append(errs, validateTrust(s.ClusterTrustBundle, bundle)...)
			taken(s.ClusterTrustBundle.Path, bundle.Child("path"))
		}
		if s.PodCertificate != nil {
			kinds++
			errs = append(errs, validateCertificate(s.PodCertificate, at.Child("podCertificate"), taken)...)
		}
		switch {
		case kinds == 0:
			errs = append(errs, field.Required(at, "must specify one of: `configMap`, `secret`, `downwardAPI`, `serviceAccountToken`, `clusterTrustBundle` or `podCertificate`"))
		case kinds > 1:
			errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
		}
	}
	return errs
}

// validateToken is about a token of the pod's service account, and how long it is good for.
func validateToken(token *corev1.ServiceAccountTokenProjection, at *field.Path) field.ErrorList {
	errs := append(validateFilePath(token.Path, at.Child("path")), validateUser(token.User, at.Child("user"))...)
	if s := token.ExpirationSeconds; s != nil && (*s < minTokenSeconds || *s > maxTokenSeconds) {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, validation.InclusiveRangeError(minTokenSeconds, maxTokenSeconds)))
	}
	return errs
}

// validateTrust is about trust anchors: those of one bundle, by its name, or all of a signer that a selector finds.
func validateTrust(bundle *corev1.ClusterTrustBundleProjection, at *field.Path) (errs field.ErrorList) {
	name, signer := bundle.Name, bundle.SignerName
	switch {
	case name != nil && signer != nil:
		errs = append(errs, field.Invalid(at, bundle, "only one of name and signerName may be used"))
	case name != nil:
		if *name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must be a valid object name"))
		} else {
			for _, message := range TrustBundleName(*name, signerOf(*name)) {
				errs = append(errs, field.Invalid(at.Child("name"), *name, "not a valid clustertrustbundlename: "+message))
			}
		}
		if bundle.LabelSelector != nil {
			errs = append(errs, field.Invalid(at.Child("labelSelector"), bundle.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case signer != nil:
		errs = append(errs, SignerName(*signer, at.Child("signerName"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(bundle.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	errs = append(errs, validateUser(bundle.User, at.Child("user"))...)
	return append(errs, validateFilePath(bundle.Path, at.Child("path"))...)
}

// validateCertificate is about a certificate of the pod and its key: who signs it, and in which files they are.
func validateCertificate(c *corev1.PodCertificateProjection, at *field.Path, taken func(path string, at *field.Path)) field.ErrorList {
	errs := SignerName(c.SignerName, at.Child("signerName"))
	errs = append(errs, validateUser(c.User, at.Child("user"))...)
	errs = append(errs, UserAnnotations(c.UserAnnotations, at.Child("userAnnotations"))...)
	errs = append(errs, among(c.KeyType, at.Child("keyType"), "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")...)
	if s := c.MaxExpirationSeconds; s != nil {
		at, most := at.Child("maxExpirationSeconds"), MaxCertificateSeconds(c.SignerName)
		if *s < MinCertificateSeconds {
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", MinCertificateSeconds)))
		}
		if *s > most {
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	files := 0
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path == "" {
			continue
		}
		files++
		errs = append(errs, validateFilePath(f.path, at.Child(f.name))...)
		taken(f.path, at.Child(f.name))
	}
	if files == 0 {
		errs = append(errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return errs
}
