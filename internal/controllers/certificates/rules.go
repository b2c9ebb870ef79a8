package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
	// longest is how long a certificate is valid that nobody asked a time of, and shortest the least that is issued.
	longest  = 365 * 24 * time.Hour
	shortest = 10 * time.Minute
)

// How long requests stay: what was decided about, and what was not.
const (
	decidedStays   = time.Hour
	undecidedStays = 24 * time.Hour
)

// acceptable checks a request by the rules of its signer (certificates.k8s.io/v1, the documentation of the signers' names).
func acceptable(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0 {
			return errors.New("DNS, IP, email and URI subjectAltNames are not allowed")
		}
		return errors.Join(ofNode(r), only(usages, certificatesv1.UsageClientAuth))
	case certificatesv1.KubeletServingSignerName:
		if len(r.DNSNames)+len(r.IPAddresses) == 0 {
			return errors.New("DNS or IP subjectAltName is required")
		}
		if len(r.EmailAddresses)+len(r.URIs) > 0 {
			return errors.New("email and URI subjectAltNames are not allowed")
		}
		return errors.Join(ofNode(r), only(usages, certificatesv1.UsageServerAuth))
	case certificatesv1.KubeAPIServerClientSignerName:
		return only(usages, certificatesv1.UsageClientAuth)
	}
	return fmt.Errorf("signer %q is somebody else's", signer)
}

// ofNode: the subject is that of a node's agent.
func ofNode(r *x509.CertificateRequest) error {
	if !slices.Equal(r.Subject.Organization, []string{nodesGroup}) {
		return errors.New("organization is not system:nodes")
	}
	if !strings.HasPrefix(r.Subject.CommonName, nodeUserPrefix) {
		return errors.New("the common name is not that of a node, system:node:NAME")
	}
	return nil
}

// only: the key is for one purpose, and signs, and may encrypt keys.
func only(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return fmt.Errorf("usage %q is not allowed: %q are", u, allowed)
		}
	}
	if !slices.Contains(usages, purpose) {
		return fmt.Errorf("usage %q is missing", purpose)
	}
	return nil
}

// template is what the certificate says. The signers' rules leave three usages.
func template(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) *x509.Certificate {
	t := &x509.Certificate{Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses, URIs: r.URIs}
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature:
			t.KeyUsage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			t.KeyUsage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
	}
	return t
}

// life is how long the certificate of a request is valid.
func life(r *request) time.Duration {
	if s := r.Spec.ExpirationSeconds; s != nil {
		return min(max(time.Duration(*s)*time.Second, shortest), longest)
	}
	return longest
}

// lasts says when a request has no use any more; false: it depends on something that is still to come.
func lasts(r *request) (time.Time, bool) {
	var decided time.Time
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			// One that is approved and not signed waits for a signer that may be somebody else's.
			if len(r.Status.Certificate) == 0 {
				continue
			}
			decided = c.LastUpdateTime.Time
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			decided = c.LastUpdateTime.Time
		}
	}
	switch {
	case !decided.IsZero():
		return decided.Add(decidedStays), true
	case len(r.Status.Conditions) == 0:
		return r.CreationTimestamp.Add(undecidedStays), true
	}
	return time.Time{}, false
}
