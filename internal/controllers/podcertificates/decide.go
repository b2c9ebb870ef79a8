package podcertificates

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

type request = certificatesv1.PodCertificateRequest

// Signer is the signer whose certificates this package issues.
const Signer = "monopod.dev/pod-identity"

// ServicesAnnotation is what a pod's author may tell the signer: the services of the pod's namespace that the pod answers for, by their names, separated by commas. Whoever
// makes pods in a namespace can have any service of it lead to them, so that this is nobody's secret and nobody's right.
const ServicesAnnotation = "monopod.dev/services"

const (
	// begun is how long before now a certificate begins, for clocks that are behind. The API server takes 5 minutes.
	begun = 2 * time.Minute
	// maxCommonName bounds a common name (RFC 5280, ub-common-name).
	maxCommonName = 64
)

// denial is why there is no certificate.
type denial struct{ reason, message string }

// decide says what the certificate of a request has in it, and when it is to be renewed, or why there is none. domain is the cluster's.
func decide(r *request, pod *corev1.Pod, domain string, now time.Time) (template *x509.Certificate, refresh time.Time, no *denial) {
	services, no := servicesOf(r.Spec.UnverifiedUserAnnotations)
	if no != nil {
		return nil, refresh, no
	}
	if r.Spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return nil, refresh, &denial{"WrongServiceAccount", fmt.Sprintf("the pod runs as the service account %q, and not as %q", pod.Spec.ServiceAccountName, r.Spec.ServiceAccountName)}
	}
	ns, account := r.Namespace, r.Spec.ServiceAccountName
	template = &x509.Certificate{
		URIs:     []*url.URL{{Scheme: "spiffe", Host: domain, Path: "/ns/" + ns + "/sa/" + account}},
		DNSNames: names(pod, services, domain),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		NotBefore:             now.Add(-begun).Truncate(time.Second),
	}
	if user := "system:serviceaccount:" + ns + ":" + account; len(user) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: user}
	}
	life := time.Duration(*r.Spec.MaxExpirationSeconds) * time.Second
	template.NotAfter = template.NotBefore.Add(life)
	return template, template.NotBefore.Add(life * 2 / 3).Truncate(time.Second), nil
}

// servicesOf reads what the pod's author says.
func servicesOf(annotations map[string]string) (services []string, no *denial) {
	const reason = certificatesv1.PodCertificateRequestConditionInvalidUserConfig
	for key := range annotations {
		if key != ServicesAnnotation {
			return nil, &denial{reason, fmt.Sprintf("the key %q is not known; %q is", key, ServicesAnnotation)}
		}
	}
	for name := range strings.SplitSeq(annotations[ServicesAnnotation], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if wrong := validation.IsDNS1035Label(name); len(wrong) > 0 {
			return nil, &denial{reason, fmt.Sprintf("%s: %q is no name of a service: %s", ServicesAnnotation, name, wrong[0])}
		}
		services = append(services, name)
	}
	return services, nil
}

// names are those under which others reach the pod: its own below a headless service, and its services'. Each has the namespace in it, because a shorter one may be another
// pod's elsewhere.
func names(pod *corev1.Pod, services []string, domain string) (all []string) {
	add := func(name string) {
		for _, n := range []string{name + ".svc", name + ".svc." + domain} {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	if sub := pod.Spec.Subdomain; sub != "" {
		host := pod.Spec.Hostname
		if host == "" {
			host = pod.Name
		}
		add(host + "." + sub + "." + pod.Namespace)
	}
	for _, s := range services {
		add(s + "." + pod.Namespace)
	}
	return all
}

// forKey completes a template for a key: RSA may also be used to exchange keys.
func forKey(template *x509.Certificate, key any) {
	if _, ok := key.(*rsa.PublicKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
}
