package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod.dev/monopod/internal/pods"
)

// References are the objects that a pod's specification leads to, of the kinds that are followed, each once.
func References(pod *v1.Pod) []Name {
	var names []Name
	add := func(n Name) {
		if kinds[n.Kind].follow != nil && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for r := range pods.References(pod) {
		add(Name{Kind: r.Kind, Namespace: pod.Namespace, Name: r.Name})
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ClusterTrustBundle != nil {
				add(TrustBundles(s.ClusterTrustBundle))
			}
			if s.PodCertificate != nil {
				add(CertificateRequests(pod))
			}
		}
	}
	return names
}

// TrustBundles are the bundles that a volume shows: one by its name, or those of a signer, of which the volume may select some.
func TrustBundles(p *v1.ClusterTrustBundleProjection) Name {
	switch {
	case p.Name != nil:
		return Name{Kind: TrustBundle, Name: *p.Name}
	case p.SignerName != nil:
		return Name{Kind: TrustBundle, Selector: fields.OneTermEqualSelector("spec.signerName", *p.SignerName).String()}
	}
	return Name{} // the API lets none be
}

// CertificateRequests are the requests for certificates of a pod. A node may see those of its pods alone, and has to say so.
func CertificateRequests(pod *v1.Pod) Name {
	return Name{Kind: CertificateRequest, Namespace: pod.Namespace, Selector: fields.Set{"spec.nodeName": pod.Spec.NodeName, "spec.podName": pod.Name}.AsSelector().String()}
}
