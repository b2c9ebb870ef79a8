package registry_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
	"monopod.dev/monopod/internal/apiserver/registry/clustertrustbundle"
	"monopod.dev/monopod/internal/apiserver/registry/podcertificaterequest"
)

// certified is a certificate of its own, as PEM.
func certified(t *testing.T, name string, authority bool) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: authority,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// proofOf is a request that shows that somebody has a key, in base64.
func proofOf(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func TestRulesOfTrustBundles(t *testing.T) {
	bundle := rulesOf(clustertrustbundle.Resource())
	a, b, leaf := certified(t, "a", true), certified(t, "b", true), certified(t, "leaf", false)
	with := func(name, signer, text string) string {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"signerName": signer, "trustBundle": text}})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	const anchors = `spec.trustBundle: Invalid value: "<value omitted>": `
	for name, tc := range map[string]ruleCase{
		"nobody's":                 {bundle, with("roots", "", a+"between\n"+b), "", ""},
		"a signer's":               {bundle, with("example.com:a.b:v1", "example.com/a.b", a), "", ""},
		"nobody's with a colon":    {bundle, with("a:b", "", a), "", `metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name`},
		"a signer's of other name": {bundle, with("roots", "example.com/a", a), "", `metadata.name: Invalid value: "roots": ClusterTrustBundle for signerName example.com/a must be named with prefix example.com:a:`},
		"a signer's of bad name":   {bundle, with("example.com:a:B", "example.com/a", a), "", `metadata.name: Invalid value: "example.com:a:B": a lowercase RFC 1123 subdomain`},
		"signer without a path":    {bundle, with("example.com:a", "example.com", a), "", "spec.signerName: Invalid value: \"example.com\": must be a fully qualified domain and path of the form 'example.com/signer-name'"},
		"signer of one label":      {bundle, with("example:a:b", "example/a", a), "", `spec.signerName: Invalid value: "example": should be a domain with at least two segments separated by dots`},
		"signer with capitals":     {bundle, with("Example.com:a:b", "Example.com/a", a), "", `spec.signerName: Invalid value: "Example.com": validating label "Example"`},
		"nothing":                  {bundle, with("roots", "", ""), "", anchors + "at least one trust anchor must be provided"},
		"no authority":             {bundle, with("roots", "", a+leaf), "", anchors + "entry 1 does not have the CA bit set"},
		"a key":                    {bundle, with("roots", "", strings.ReplaceAll(a, "CERTIFICATE", "PRIVATE KEY")), "", anchors + "entry 0 has bad block type: PRIVATE KEY"},
		"headers":                  {bundle, with("roots", "", strings.Replace(a, "-----\n", "-----\nA: b\n\n", 1)), "", anchors + "entry 0 has PEM block headers"},
		"no certificate":           {bundle, with("roots", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "", anchors + "entry 0 does not parse as X.509"},
		"one twice":                {bundle, with("roots", "", a+b+a), "", anchors + "duplicate trust anchor (indices [0 2])"},
		"too much":                 {bundle, with("roots", "", strings.Repeat("a", 1<<20+1)), "", "spec.trustBundle: Too long"},
		"other certificates":       {bundle, with("roots", "", b), with("roots", "", a), ""},
		"what was good once":       {bundle, with("roots", "", leaf), with("roots", "", leaf), ""},
		"no authority any more":    {bundle, with("roots", "", leaf), with("roots", "", a), anchors + "entry 0 does not have"},
		"another signer":           {bundle, with("example.com:a:b", "example.com/a", a), with("example.com:a:b", "example.com/b", a), "spec.signerName: Invalid value: \"example.com/a\": field is immutable"},
	} {
		t.Run(name, tc.check)
	}
}

func TestRulesOfPodCertificateRequests(t *testing.T) {
	request := rulesOf(podcertificaterequest.Resource())
	ec := func(curve elliptic.Curve) crypto.Signer {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := proofOf(t, ec(elliptic.P256()))
	raw, _ := base64.StdEncoding.DecodeString(good)
	raw[len(raw)-1] ^= 1
	forged := base64.StdEncoding.EncodeToString(raw)
	all := map[string]string{
		"signerName": "example.com/a", "podName": "p", "podUID": "u", "serviceAccountName": "default", "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u", "stubPKCS10Request": good,
	}
	with := func(change ...string) string {
		spec := map[string]any{}
		for k, v := range all {
			spec[k] = v
		}
		for i := 0; i < len(change); i += 2 {
			spec[change[i]] = json.RawMessage(change[i+1])
		}
		text, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	quoted := func(s string) string { return `"` + s + `"` }
	const proof = "stubPKCS10Request"
	for name, tc := range map[string]ruleCase{
		"request":                {request, with("maxExpirationSeconds", "7862400", "unverifiedUserAnnotations", `{"example.com/A": "b"}`), "", ""},
		"its default":            {request, with(), "", ""},
		"a large curve":          {request, with(proof, quoted(proofOf(t, ec(elliptic.P521())))), "", ""},
		"signer":                 {request, with("signerName", `"a"`), "", "spec.signerName: Invalid value"},
		"annotation":             {request, with("unverifiedUserAnnotations", `{"a": "b"}`), "", "spec.unverifiedUserAnnotations: Invalid value"},
		"annotations":            {request, with("unverifiedUserAnnotations", `{"a.b/c": "`+strings.Repeat("a", 256<<10)+`"}`), "", "spec.unverifiedUserAnnotations: Too long"},
		"pod":                    {request, with("podName", `"A"`), "", "spec.podName: Invalid value"},
		"pod's UID":              {request, with("podUID", `""`), "", "spec.podUID: Invalid value: \"\": must not be empty"},
		"account's UID":          {request, with("serviceAccountUID", `"`+strings.Repeat("a", 129)+`"`), "", "spec.serviceAccountUID: Too long"},
		"node's UID":             {request, with("nodeUID", `""`), "", "spec.nodeUID: Invalid value"},
		"short":                  {request, with("maxExpirationSeconds", "3599"), "", "spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]"},
		"long":                   {request, with("maxExpirationSeconds", "7862401"), "", "spec.maxExpirationSeconds: Invalid value"},
		"long, of Kubernetes":    {request, with("signerName", `"kubernetes.io/kube-apiserver-client-pod"`, "maxExpirationSeconds", "86401"), "", "spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"},
		"no proof":               {request, with(proof, `""`), "", "spec.stubPKCS10Request: Required value"},
		"no request":             {request, with(proof, `"AAAA"`), "", "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"},
		"forged":                 {request, with(proof, quoted(forged)), "", "spec.stubPKCS10Request: Invalid value: invalid signature"},
		"a short key":            {request, with(proof, quoted(proofOf(t, short))), "", `spec.stubPKCS10Request: Invalid value: "2048-bit modulus": RSA keys must have modulus size 3072 or 4096`},
		"another curve":          {request, with(proof, quoted(proofOf(t, ec(elliptic.P224())))), "", `spec.stubPKCS10Request: Invalid value: "curve P-224": elliptic public keys must use curve P256, P384, or P521`},
		"nothing of it changes":  {request, with("podName", `"q"`), with(), "spec: Invalid value"},
		"metadata may change":    {request, with(), with(), ""},
		"too large":              {request, with(proof, quoted(base64.StdEncoding.EncodeToString(make([]byte, 10*1024+1)))), "", "spec.stubPKCS10Request: Too long"},
		"signer without a path":  {rulesOf(certificatesigningrequest.Resource()), csr(t, "example.com"), "", "spec.signerName: Invalid value: \"example.com\": must be a fully qualified"},
		"a signer of before":     {rulesOf(certificatesigningrequest.Resource()), csr(t, "kubernetes.io/legacy-unknown"), "", "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed"},
		"a signer with a domain": {rulesOf(certificatesigningrequest.Resource()), csr(t, "example.com/a.b"), "", ""},
	} {
		t.Run(name, tc.check)
	}
}

// csr is a certificate signing request to a signer.
func csr(t *testing.T, signer string) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{
		"signerName": signer, "usages": []string{"client auth"}, "request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTablesOfCertificates(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x"}
	ask := func(conditions ...metav1.Condition) certificatesv1.PodCertificateRequest {
		return certificatesv1.PodCertificateRequest{ObjectMeta: meta, Spec: certificatesv1.PodCertificateRequestSpec{
			PodName: "p", ServiceAccountName: "a", NodeName: "n", SignerName: "b.c/d",
		}, Status: certificatesv1.PodCertificateRequestStatus{Conditions: conditions}}
	}
	annotated := ask(metav1.Condition{Type: "Denied"})
	annotated.Spec.UnverifiedUserAnnotations = map[string]string{"a.b/c": "d"}
	for _, tc := range []struct {
		name      string
		convertor rest.TableConvertor
		obj       runtime.Object
		want      string
	}{
		{"bundles", clustertrustbundle.Resource().Table(), &certificatesv1.ClusterTrustBundleList{Items: []certificatesv1.ClusterTrustBundle{
			{ObjectMeta: meta}, {ObjectMeta: meta, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "a.b/c"}},
		}}, "NAME|SIGNERNAME\nx|<none>\nx|a.b/c"},
		{"requests", podcertificaterequest.Resource().Table(), &certificatesv1.PodCertificateRequestList{Items: []certificatesv1.PodCertificateRequest{
			ask(), ask(metav1.Condition{Type: "Issued"}), annotated,
		}}, "NAME|PODNAME|SERVICEACCOUNTNAME|NODENAME|SIGNERNAME|STATE|UNVERIFIEDUSERANNOTATIONS\nx|p|a|n|b.c/d|Pending|<none>\nx|p|a|n|b.c/d|Issued|<none>\nx|p|a|n|b.c/d|Denied|a.b/c=d"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := render(t, tc.convertor, tc.obj, false); got != tc.want {
				t.Errorf("table:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}
