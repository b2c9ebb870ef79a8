package noderestriction

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
	"monopod.dev/monopod/internal/pods"
)

// signing admits requests for certificates that name the node itself.
func (r request) signing() error {
	if r.GetOperation() != admission.Create {
		return nil
	}
	csr, ok := r.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return r.unexpected(r.GetObject())
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	parsed, err := certificatesigningrequest.Parse(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if want := pki.NodeUserPrefix + r.node; parsed.Subject.CommonName != want {
		return fmt.Errorf("can only create a node CSR with CN=%s", want)
	}
	return nil
}

// apiReference is the resource of an object that a pod refers to; empty: it refers to none.
func apiReference(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName != "" {
		return "serviceaccounts"
	}
	for r := range pods.References(pod) {
		return string(r.Kind)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			switch {
			case s.ServiceAccountToken != nil:
				return "serviceaccounts"
			case s.ClusterTrustBundle != nil:
				return "clustertrustbundles"
			case s.PodCertificate != nil:
				return "podcertificates"
			}
		}
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	return ""
}
