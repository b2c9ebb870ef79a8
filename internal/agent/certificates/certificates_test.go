package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"monopod.dev/monopod/internal/agent/objects"
)

// world is an API server, a signer and a clock.
type world struct {
	*testing.T
	client *fake.Clientset
	store  *Store
	pod    *v1.Pod

	mu     sync.Mutex
	now    time.Time
	made   int
	told   []string
	answer func(r *certificatesv1.PodCertificateRequest)
	fail   error
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "sa-uid"}}
	w.client = fake.NewClientset(account)
	w.client.PrependReactor("create", "podcertificaterequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fail != nil {
			return true, nil, w.fail
		}
		r := a.(clienttesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		w.made++
		r.Name = fmt.Sprintf("%s%d", r.GenerateName, w.made)
		if w.answer != nil {
			w.answer(r)
		}
		return false, nil, nil
	})
	w.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p-uid"}, Spec: v1.PodSpec{NodeName: "n", ServiceAccountName: "sa", Volumes: []v1.Volume{
		{Name: "certs", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{PodCertificate: w.projection("ECDSAP256")}}}}},
	}}}
	ctx, cancel := context.WithCancel(context.Background())
	followed := objects.New(ctx, w.client)
	t.Cleanup(func() { cancel(); followed.Wait() })
	w.store = New(Config{
		Client: w.client, Objects: followed, Log: slog.New(slog.DiscardHandler),
		NodeUID: func() types.UID { return "n-uid" },
		Tell: func(_ *v1.Pod, _, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, reason+": "+message)
		},
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	})
	return w
}

func (w *world) projection(keyType string) *v1.PodCertificateProjection {
	return &v1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: keyType, CredentialBundlePath: "c", MaxExpirationSeconds: new(int32(3600)), UserAnnotations: map[string]string{"a.b/c": "d"}}
}

// sign has requests from now on answered as they are made, with certificates of an hour that are to be renewed after half of it.
func (w *world) sign() {
	w.set(func() {
		w.answer = func(r *certificatesv1.PodCertificateRequest) {
			begin, refresh, end := metav1.NewTime(w.now), metav1.NewTime(w.now.Add(30*time.Minute)), metav1.NewTime(w.now.Add(time.Hour))
			r.Status = certificatesv1.PodCertificateRequestStatus{
				Conditions: []metav1.Condition{{Type: "Issued", Status: "True"}}, NotBefore: &begin, BeginRefreshAt: &refresh, NotAfter: &end,
				CertificateChain: "between\n-----BEGIN CERTIFICATE-----\nA: b\n\n" + "AAAA\n-----END CERTIFICATE-----\n# " + r.Name,
			}
		}
	})
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) later(d time.Duration) { w.set(func() { w.now = w.now.Add(d) }) }

func (w *world) events() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, "\n")
}

func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made
}

func (w *world) get() (Credentials, error) {
	return w.store.Credentials(w.Context(), w.pod, "certs", 0, w.projection("ECDSAP256"))
}

func (w *world) must() Credentials {
	w.Helper()
	c, err := w.get()
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// TestKeys: of each type a key is made, in the form of PKCS#8, whose proof the API server takes.
func TestKeys(t *testing.T) {
	for _, keyType := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		key, proof, err := newRequest(keyType)
		if err != nil {
			t.Fatal(keyType, err)
		}
		asked, err := x509.ParseCertificateRequest(proof)
		if err != nil || asked.CheckSignature() != nil || asked.Subject.String() != "" {
			t.Errorf("%s: %v, %+v", keyType, err, asked)
		}
		block, rest := pem.Decode(key)
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Errorf("%s: %s", keyType, key)
			continue
		}
		if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			t.Errorf("%s: %v", keyType, err)
		}
	}
	if _, _, err := newRequest("DSA"); err == nil {
		t.Error("a key of an unknown type is made")
	}
}

// TestRenewal: the first certificate is waited for, and serves until the next one is there; each has a key of its own.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	if due := w.store.Due(w.pod); !due.Equal(w.now) {
		t.Errorf("what was never asked for is due at %v", due)
	}
	w.sign()
	first := w.must()
	if string(first.Chain) != "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" {
		t.Errorf("the chain is not plain: %s", first.Chain)
	}
	all, err := w.client.CertificatesV1().PodCertificateRequests("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Fatal(all, err)
	}
	r := all.Items[0]
	if s := r.Spec; s.SignerName != "example.com/signer" || s.PodName != "p" || s.PodUID != "p-uid" || s.ServiceAccountName != "sa" || s.ServiceAccountUID != "sa-uid" || s.NodeName != "n" ||
		s.NodeUID != "n-uid" || *s.MaxExpirationSeconds != 3600 || s.UnverifiedUserAnnotations["a.b/c"] != "d" || len(r.OwnerReferences) != 1 || r.OwnerReferences[0].UID != "p-uid" {
		t.Errorf("%+v", r)
	}
	due := w.store.Due(w.pod)
	if early, late := w.now.Add(30*time.Minute), w.now.Add(35*time.Minute); due.Before(early) || due.After(late) {
		t.Errorf("it is due at %v", due)
	}
	if again := w.must(); !bytes.Equal(again.Key, first.Key) || w.requests() != 1 {
		t.Error("it is asked for before it is due")
	}

	w.later(36 * time.Minute)
	if old := w.must(); !bytes.Equal(old.Key, first.Key) || w.requests() != 2 {
		t.Errorf("%d requests", w.requests())
	}
	next := w.must()
	if bytes.Equal(next.Key, first.Key) {
		t.Error("the old key serves on")
	}
	w.store.Forget(w.pod.UID)
	if again := w.must(); bytes.Equal(again.Key, next.Key) || w.requests() != 3 {
		t.Error("a pod's key outlives it")
	}
	if told := w.events(); told != "" {
		t.Errorf("told: %s", told)
	}
}

// TestNoSigner: a renewal that nobody answers, or that cannot be asked for, leaves the certificate as it is, and is told of.
func TestNoSigner(t *testing.T) {
	w := newWorld(t)
	w.sign()
	first := w.must()
	w.set(func() { w.answer, w.fail = nil, errors.New("no") })
	w.later(36 * time.Minute)
	if c := w.must(); !bytes.Equal(c.Key, first.Key) || !w.store.Due(w.pod).Equal(w.now.Add(retryPause)) {
		t.Errorf("due at %v", w.store.Due(w.pod))
	}
	w.set(func() { w.fail = nil })
	w.later(retryPause)
	w.must()
	if w.requests() != 2 || w.store.Due(w.pod).Before(w.now) {
		t.Errorf("%d requests, due at %v", w.requests(), w.store.Due(w.pod))
	}
	w.later(5 * time.Minute)
	w.must()
	w.later(time.Hour)
	if c := w.must(); !bytes.Equal(c.Key, first.Key) {
		t.Error("the old one does not serve any more")
	}
	w.must()
	if told := w.events(); told != "CertificateOverdueForRefresh: PodCertificate refresh overdue\nCertificateExpired: PodCertificate expired" {
		t.Errorf("told: %s", told)
	}
	if due := w.store.Due(w.pod); !due.IsZero() {
		t.Errorf("due at %v: nothing is to be told any more", due)
	}

	// The request is deleted, as the cleaner does it: another one is asked for, and answered.
	requests := w.client.CertificatesV1().PodCertificateRequests("ns")
	if err := requests.Delete(t.Context(), "req-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sign()
	w.must() // it is seen to be gone
	w.must() // another one is asked for
	if c := w.must(); bytes.Equal(c.Key, first.Key) || w.requests() != 3 {
		t.Errorf("%d requests", w.requests())
	}
}

// TestRefused: what is denied is denied for good, and told of once.
func TestRefused(t *testing.T) {
	for _, condition := range []string{"Denied", "Failed"} {
		w := newWorld(t)
		w.set(func() {
			w.answer = func(r *certificatesv1.PodCertificateRequest) {
				r.Status.Conditions = []metav1.Condition{{Type: condition, Status: "True", Reason: "UnsupportedKeyType", Message: "try RSA"}}
			}
		})
		want := fmt.Sprintf(`PodCertificateRequest was permanently %s: reason="UnsupportedKeyType" message="try RSA"`, strings.ToLower(condition))
		for range 2 {
			if _, err := w.get(); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		told := map[string]string{"Denied": "was denied", "Failed": "failed"}[condition]
		if want := fmt.Sprintf(`%s: PodCertificateRequest ns/req-1 %s, reason="UnsupportedKeyType", message="try RSA"`, condition, told); w.events() != want || w.requests() != 1 {
			t.Errorf("told %q after %d requests, want %q", w.events(), w.requests(), want)
		}
		if due := w.store.Due(w.pod); !due.IsZero() {
			t.Errorf("due at %v", due)
		}
	}
}

// TestFirstIsAwaited: who waits for a certificate is told of it when it is issued, and waits no longer than its context lets it. The request is the same one then.
func TestFirstIsAwaited(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.store.Credentials(ctx, w.pod, "certs", 0, w.projection("ECDSAP256")); err == nil || !strings.Contains(err.Error(), "credential bundle is not issued yet") {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := w.get()
		got <- err
	}()
	requests := w.client.CertificatesV1().PodCertificateRequests("ns")
	r, err := requests.Get(t.Context(), "req-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.sign()
	w.set(func() { w.answer(r) })
	if _, err := requests.UpdateStatus(t.Context(), r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || w.requests() != 1 {
		t.Errorf("%v after %d requests", err, w.requests())
	}
}

// TestGone: a request that somebody has deleted before it was answered is asked for again, but not at once.
func TestGone(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.store.Credentials(ctx, w.pod, "certs", 0, w.projection("ED25519")); err == nil {
		t.Fatal("there is a certificate")
	}
	if err := w.client.CertificatesV1().PodCertificateRequests("ns").Delete(t.Context(), "req-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sign()
	w.later(pause)
	if _, err := w.get(); err == nil || !strings.Contains(err.Error(), "appears to have been deleted") || w.requests() != 1 {
		t.Errorf("%v after %d requests", err, w.requests())
	}
	w.must()
	if w.requests() != 2 {
		t.Errorf("%d requests", w.requests())
	}
}
