package validation

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What may be asked of a signer of pods' certificates, in seconds (certificates.k8s.io/v1, maxExpirationSeconds).
const (
	// MinCertificateSeconds is the shortest life of a certificate.
	MinCertificateSeconds = 60 * 60
	// maxCertificateSeconds is the longest, maxKubernetesSeconds that of the signers of the Kubernetes project.
	maxCertificateSeconds = 91 * 24 * 60 * 60
	maxKubernetesSeconds  = 24 * 60 * 60
)

// A path of a signer's name has room for a namespace and the name of an object in it.
const (
	maxSignerPath = validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 1
	maxSignerName = validation.DNS1123SubdomainMaxLength + maxSignerPath + 1
)

// ofKubernetes says that a signer's name is one that the Kubernetes project keeps for itself.
func ofKubernetes(signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// MaxCertificateSeconds is the longest life that a certificate of a signer may be asked for.
func MaxCertificateSeconds(signer string) int32 {
	if ofKubernetes(signer) {
		return maxKubernetesSeconds
	}
	return maxCertificateSeconds
}

// SignerName is about the name of a signer of certificates: a domain and a path, "example.com/name".
func SignerName(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, found := strings.Cut(name, "/")
	if !found || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, signerLabels(domain, at, validation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, signerLabels(path, at, validation.IsDNS1123Subdomain)...)
	if len(name) > maxSignerName {
		errs = append(errs, field.TooLong(at, "", maxSignerName))
	}
	return errs
}

// signerLabels checks the labels of a part of a signer's name. What is wrong with the first is said, and no more.
func signerLabels(part string, at *field.Path, check func(string) []string) (errs field.ErrorList) {
	for label := range strings.SplitSeq(part, ".") {
		for _, message := range check(label) {
			errs = append(errs, field.Invalid(at, part, fmt.Sprintf("validating label %q: %s", label, message)))
		}
		if len(errs) > 0 {
			break
		}
	}
	return errs
}

// SignerPrefix is what the names of a signer's trust bundles begin with.
func SignerPrefix(signer string) string { return strings.ReplaceAll(signer, "/", ":") + ":" }

// TrustBundleName is about the name of a ClusterTrustBundle: those of a signer begin with the signer's name, and no others have a colon.
func TrustBundleName(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	}
	rest, ok := strings.CutPrefix(name, SignerPrefix(signer))
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, SignerPrefix(signer))}
	}
	return apivalidation.NameIsDNSSubdomain(rest, false)
}

// signerOf is the signer whose bundle a name says to be; empty: nobody's.
func signerOf(bundle string) string {
	at := strings.LastIndex(bundle, ":")
	if at < 0 {
		return ""
	}
	return strings.ReplaceAll(bundle[:at], ":", "/")
}

// UserAnnotations are about what a pod's author tells the signer of the pod's certificates.
func UserAnnotations(all map[string]string, at *field.Path) (errs field.ErrorList) {
	for key := range all {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(all) != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}
