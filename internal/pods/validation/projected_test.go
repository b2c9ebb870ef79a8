package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestCertificates: sources of trust bundles and certificates are checked in the words of a Kubernetes API server.
func TestCertificates(t *testing.T) {
	trust := func(change func(*corev1.ClusterTrustBundleProjection)) corev1.VolumeProjection {
		p := &corev1.ClusterTrustBundleProjection{Name: new("roots"), Path: "ca"}
		change(p)
		return corev1.VolumeProjection{ClusterTrustBundle: p}
	}
	own := func(change func(*corev1.PodCertificateProjection)) corev1.VolumeProjection {
		p := &corev1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519", CredentialBundlePath: "both"}
		change(p)
		return corev1.VolumeProjection{PodCertificate: p}
	}
	of := func(signer string, selector *metav1.LabelSelector) corev1.VolumeProjection {
		return trust(func(p *corev1.ClusterTrustBundleProjection) {
			p.Name, p.SignerName, p.LabelSelector = nil, &signer, selector
		})
	}
	named := func(name string) corev1.VolumeProjection {
		return trust(func(p *corev1.ClusterTrustBundleProjection) { p.Name = &name })
	}
	seconds := func(signer string, s int32) corev1.VolumeProjection {
		return own(func(p *corev1.PodCertificateProjection) { p.SignerName, p.MaxExpirationSeconds = signer, &s })
	}
	const first, bundle, certificate = "p.sources[0]", "p.sources[0].clusterTrustBundle", "p.sources[0].podCertificate"
	for name, tc := range map[string]struct {
		sources []corev1.VolumeProjection
		want    string
	}{
		"by name":              {[]corev1.VolumeProjection{named("roots")}, ""},
		"a signer's by name":   {[]corev1.VolumeProjection{named("a.b:c:d")}, ""},
		"by signer":            {[]corev1.VolumeProjection{of("a.b/c", nil)}, ""},
		"some of a signer":     {[]corev1.VolumeProjection{of("a.b/c", &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})}, ""},
		"no name":              {[]corev1.VolumeProjection{named("")}, bundle + ".name: Required value: must be a valid object name"},
		"bad name":             {[]corev1.VolumeProjection{named("A")}, bundle + `.name: Invalid value: "A": not a valid clustertrustbundlename: a lowercase RFC 1123`},
		"bad name of a signer": {[]corev1.VolumeProjection{named("a.b:c:D")}, bundle + `.name: Invalid value: "a.b:c:D": not a valid clustertrustbundlename: a lowercase RFC 1123`},
		"both": {[]corev1.VolumeProjection{trust(func(p *corev1.ClusterTrustBundleProjection) { p.SignerName = new("a.b/c") })},
			bundle + ": Invalid value"},
		"neither":  {[]corev1.VolumeProjection{trust(func(p *corev1.ClusterTrustBundleProjection) { p.Name = nil })}, bundle + ": Required value: either name or signerName must be specified"},
		"selector": {[]corev1.VolumeProjection{of("a.b/c", &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}})}, bundle + ".labelSelector.matchLabels: Invalid value"},
		"selector of a name": {[]corev1.VolumeProjection{trust(func(p *corev1.ClusterTrustBundleProjection) { p.LabelSelector = &metav1.LabelSelector{} })},
			bundle + ".labelSelector: Invalid value"},
		"signer":  {[]corev1.VolumeProjection{of("a", nil)}, bundle + ".signerName: Invalid value"},
		"no path": {[]corev1.VolumeProjection{trust(func(p *corev1.ClusterTrustBundleProjection) { p.Path = "" })}, bundle + ".path: Required value"},
		"user":    {[]corev1.VolumeProjection{trust(func(p *corev1.ClusterTrustBundleProjection) { p.User = new(int64(-1)) })}, bundle + ".user: Invalid value: -1"},

		"certificate": {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) {
			p.KeyPath, p.CertificateChainPath, p.UserAnnotations = "key", "chain", map[string]string{"A.b/c": "d"}
		})}, ""},
		"a day of Kubernetes'": {[]corev1.VolumeProjection{seconds("kubernetes.io/a", 86400)}, ""},
		"more of Kubernetes'":  {[]corev1.VolumeProjection{seconds("x.kubernetes.io/a", 86401)}, certificate + ".maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400"},
		"91 days":              {[]corev1.VolumeProjection{seconds("a.b/c", 7862400)}, ""},
		"more":                 {[]corev1.VolumeProjection{seconds("a.b/c", 7862401)}, certificate + ".maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400"},
		"less":                 {[]corev1.VolumeProjection{seconds("a.b/c", 3599)}, certificate + ".maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600"},
		"key type":             {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.KeyType = "RSA2048" })}, certificate + `.keyType: Unsupported value: "RSA2048": supported values: "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"`},
		"no file":              {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.CredentialBundlePath = "" })}, certificate + ": Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath"},
		"file":                 {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.KeyPath = "../key" })}, certificate + ".keyPath: Invalid value"},
		"annotation":           {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.UserAnnotations = map[string]string{"a": "b"} })}, certificate + ".userAnnotations: Invalid value"},
		"nobody signs":         {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.SignerName = "" })}, certificate + ".signerName: Required value"},
		"one file for two":     {[]corev1.VolumeProjection{own(func(p *corev1.PodCertificateProjection) { p.KeyPath = "both" })}, certificate + `.keyPath: Invalid value: "both": conflicting duplicate paths`},
		"one file of two":      {[]corev1.VolumeProjection{named("roots"), own(func(p *corev1.PodCertificateProjection) { p.KeyPath = "ca" })}, `p.sources[1].podCertificate.keyPath: Invalid value: "ca": conflicting duplicate paths`},
		"two sources in one":   {[]corev1.VolumeProjection{{ClusterTrustBundle: named("roots").ClusterTrustBundle, PodCertificate: own(func(*corev1.PodCertificateProjection) {}).PodCertificate}}, first + ": Forbidden: may not specify more than 1 volume type"},
	} {
		errs := validateProjected(&corev1.ProjectedVolumeSource{Sources: tc.sources}, field.NewPath("p"))
		if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, errs, tc.want)
		}
	}
	errs := validateProjected(&corev1.ProjectedVolumeSource{DefaultUser: new(int64(-1)), Sources: []corev1.VolumeProjection{named("a")}}, field.NewPath("p"))
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "p.defaultUser: Invalid value: -1") {
		t.Error(errs)
	}
}
