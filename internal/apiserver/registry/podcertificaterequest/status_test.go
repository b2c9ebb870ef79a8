package podcertificaterequest

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is a certificate for a key, as PEM.
func signed(t *testing.T, key crypto.PublicKey, begin, end time.Time, change func(*x509.Certificate)) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: end}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func conditions(types ...string) (all []metav1.Condition) {
	for _, c := range types {
		all = append(all, metav1.Condition{Type: c, Status: "True", Reason: "R", LastTransitionTime: metav1.Now()})
	}
	return all
}

// TestStatus: a status is written once, by a signer who has issued what was asked for or says that there is none.
func TestStatus(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	key := newKey(t)
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	base := func() *request {
		return &request{Spec: certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: proof, MaxExpirationSeconds: new(int32(7200))}}
	}
	with := func(begin, end time.Duration, change func(*x509.Certificate)) func(*request) {
		return func(r *request) {
			b, e, refresh := metav1.NewTime(now.Add(begin)), metav1.NewTime(now.Add(end)), metav1.NewTime(now.Add(begin+(end-begin)/2))
			r.Status = certificatesv1.PodCertificateRequestStatus{
				Conditions: conditions("Issued"), CertificateChain: signed(t, key.Public(), b.Time, e.Time, change), NotBefore: &b, NotAfter: &e, BeginRefreshAt: &refresh,
			}
		}
	}
	issued := with(-time.Minute, 119*time.Minute, nil)
	also := func(change func(*request)) func(*request) {
		return func(r *request) { issued(r); change(r) }
	}
	denied := func(r *request) { r.Status.Conditions = conditions("Denied") }
	at := func(d time.Duration) *metav1.Time { m := metav1.NewTime(now.Add(d)); return &m }
	for name, tc := range map[string]struct {
		old, now func(*request)
		want     string
	}{
		"nothing":         {nil, func(*request) {}, ""},
		"issued":          {nil, issued, ""},
		"denied":          {nil, denied, ""},
		"failed":          {nil, func(r *request) { r.Status.Conditions = conditions("Failed") }, ""},
		"once more":       {issued, also(func(r *request) { r.Status.CertificateChain += "\n" }), "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"},
		"denied twice":    {denied, func(r *request) { denied(r); r.Status.Conditions[0].Message = "m" }, "status: Invalid value: immutable after"},
		"the same":        {denied, func(r *request) { denied(r) }, ""},
		"by and by":       {nil, func(r *request) { r.Status.NotBefore = at(0) }, `status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed"`},
		"denied and more": {nil, func(r *request) { denied(r); r.Status.NotAfter = at(0) }, "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest"},
		"both":            {nil, also(func(r *request) { r.Status.Conditions = conditions("Issued", "Denied") }), `status.conditions[1].type: Invalid value: "Denied": There may be at most one condition with type "Issued", "Denied", or "Failed"`},
		"another":         {nil, func(r *request) { r.Status.Conditions = conditions("Seen") }, `status.conditions[0].type: Unsupported value: "Seen": supported values: "Issued", "Denied", "Failed"`},
		"perhaps":         {nil, func(r *request) { denied(r); r.Status.Conditions[0].Status = "Unknown" }, `status.conditions[0].status: Unsupported value: "Unknown": supported values: "True"`},
		"without reason":  {nil, func(r *request) { denied(r); r.Status.Conditions[0].Reason = "" }, "status.conditions[0].reason: Required value"},
		"no certificate":  {nil, also(func(r *request) { r.Status.CertificateChain = "" }), "status.certificateChain: Invalid value: \"\": issued certificate chain must contain at least one certificate"},
		"a key": {nil, also(func(r *request) {
			r.Status.CertificateChain += "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}), "status.certificateChain: Invalid value: "},
		"nonsense": {nil, also(func(r *request) {
			r.Status.CertificateChain += "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		}), "status.certificateChain: Invalid value: "},
		"too long":      {nil, also(func(r *request) { r.Status.CertificateChain += strings.Repeat("a", 100<<10) }), "status.certificateChain: Too long"},
		"another's key": {nil, also(func(r *request) { r.Status.CertificateChain = signed(t, newKey(t).Public(), now, now, nil) }), "status.certificateChain: Invalid value: "},
		"no begin":      {nil, also(func(r *request) { r.Status.NotBefore = nil }), "status.notBefore: Required value: must be present and consistent with the issued certificate"},
		"no refresh":    {nil, also(func(r *request) { r.Status.BeginRefreshAt = nil }), "status.beginRefreshAt: Required value: must be present and in the range [notbefore+10min, notafter-10min]"},
		"another begin": {nil, also(func(r *request) { r.Status.NotBefore = at(0) }), "status.notBefore: Invalid value"},
		"another end":   {nil, also(func(r *request) { r.Status.NotAfter = at(0) }), "status.notAfter: Invalid value"},
		"old":           {nil, with(-5*time.Minute-time.Second, time.Hour, nil), "status.notBefore: Invalid value"},
		"to come":       {nil, with(5*time.Minute+time.Second, 2*time.Hour, nil), "status.notBefore: Invalid value"},
		"short":         {nil, with(0, time.Hour-time.Second, nil), `status.certificateChain: Invalid value: 3599000000000: leaf certificate lifetime must be >= 1 hour`},
		"long":          {nil, with(0, 2*time.Hour+time.Second, nil), `status.certificateChain: Invalid value: 7201000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (7200)`},
		"early refresh": {nil, also(func(r *request) { r.Status.BeginRefreshAt = at(8 * time.Minute) }), "status.beginRefreshAt: Invalid value"},
		"late refresh":  {nil, also(func(r *request) { r.Status.BeginRefreshAt = at(110 * time.Minute) }), "status.beginRefreshAt: Invalid value"},
		"a name":        {nil, with(0, time.Hour, func(c *x509.Certificate) { c.DNSNames = []string{"a.b"} }), ""},
		"a name's dot":  {nil, with(0, time.Hour, func(c *x509.Certificate) { c.DNSNames = []string{"a.b."} }), `status.certificateChain: Invalid value: "a.b.": leaf certificate's DNSName should not start or end with '.'`},
		"two dots":      {nil, with(0, time.Hour, func(c *x509.Certificate) { c.DNSNames = []string{"a..b"} }), "status.certificateChain: Invalid value: \"a..b\": leaf certificate's DNSName should not contain '..'"},
		"address":       {nil, with(0, time.Hour, func(c *x509.Certificate) { c.EmailAddresses = []string{"a b"} }), "status.certificateChain: Invalid value: \"a b\": leaf certificate should not contain invalid EmailAddress"},
	} {
		old, r := base(), base()
		if tc.old != nil {
			tc.old(old)
		}
		tc.now(r)
		if tc.old != nil && name == "the same" {
			r.Status = *old.Status.DeepCopy()
		}
		errs := validateStatus(r, old, now)
		if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, errs, tc.want)
		}
	}
}
