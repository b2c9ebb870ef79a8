// Package certificates holds the keys and certificates that volumes of the node's pods show: it makes a key, asks the signer by a PodCertificateRequest, and asks for
// the next one in time.
//
// It guarantees that a certificate that is given is the key's, that the one that is held serves until the next is there, and that no key is anywhere but in this
// process and in what its callers write: none is kept over a restart, after which all are asked for anew. What a signer has denied, or failed at, is denied for the life of the
// pod.
//
//	            issued              refresh is due
//	asked ------------------> held ----------------> held, asked
//	  |  ^                     ^                        |  |
//	  |  +- the request is gone|         issued         |  |
//	  |                        +------------------------+  |
//	  +------------------> refused <------------------------+
package certificates

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/agent/objects"
)

const (
	// patience is how long a pod's volume waits for its first certificate before it is told that there is none yet.
	patience = 10 * time.Second
	// pause is the least time between two requests for the same.
	pause = 10 * time.Second
	// retryPause is when a renewal that could not be asked for is tried again.
	retryPause = 30 * time.Second
	// spread is by how much the renewals of certificates are apart that were issued together, overdue when people are told that one is not renewed.
	spread  = 5 * time.Minute
	overdue = 10 * time.Minute
)

// Objects follow the requests that the agent has made.
type Objects interface {
	objects.Lister
	// Hold has holder told of each change of these objects; Release of none any more.
	Hold(holder string, names []objects.Name, changed func())
	Release(holder string)
}

// Config is what a Store needs.
type Config struct {
	// Client has the rights of a node.
	Client  kubernetes.Interface
	Objects Objects
	// NodeUID is that of the Node object as it was last found; empty: it was not found yet.
	NodeUID func() types.UID
	// Tell tells of a pod, as an event.
	Tell func(pod *v1.Pod, kind, reason, message string)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Store is the set of keys and certificates. It is safe for concurrent use, but for one source of a volume.
type Store struct {
	cfg Config

	mu      sync.Mutex // guards records and what they point to
	records map[source]*record
}

// New makes an empty store.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{cfg: cfg, records: map[source]*record{}}
}

// source is a source of a volume of a pod.
type source struct {
	podUID types.UID
	volume string
	index  int
}

// record is what is known of a source.
type record struct {
	held    *credentials
	asked   *question
	refused error
	// noted: Due has told of it, and it is told again then.
	noted time.Time
}

// Credentials are a key and its certificates, as PEM.
type Credentials struct{ Key, Chain []byte }

// credentials are those that are shown.
type credentials struct {
	Credentials
	// begins is when the signer wants to be asked again, refreshAt when it is done.
	begins, refreshAt, ends time.Time
	// late and ended: people were told that it is not renewed, and that it has ended.
	late, ended bool
}

// question is a request that has no answer yet.
type question struct {
	key  []byte
	name string
	at   time.Time
}

// Credentials are the key and the certificates of a source of a volume: those that are held, until others are there. It waits a while for the first ones.
func (s *Store) Credentials(ctx context.Context, pod *v1.Pod, volume string, index int, p *v1.PodCertificateProjection) (Credentials, error) {
	src := source{pod.UID, volume, index}
	r := s.read(src)
	if r.refused != nil {
		return Credentials{}, r.refused
	}
	if r.held == nil {
		return s.first(ctx, pod, src, p)
	}
	s.warn(pod, src)
	if err := s.renew(ctx, pod, src, p); err != nil {
		s.cfg.Log.Warn("a certificate could not be renewed; it is tried again, and the old one serves until its end",
			"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "volume", volume, "error", err, "ends", r.held.ends)
		s.change(src, func(r *record) {
			if r.held != nil {
				r.held.refreshAt = s.cfg.Now().Add(retryPause)
			}
		})
	}
	r = s.read(src)
	if r.refused != nil {
		return Credentials{}, r.refused
	}
	return r.held.Credentials, nil
}

// first waits for the first certificate of a source, for which it asks unless that was done.
func (s *Store) first(ctx context.Context, pod *v1.Pod, src source, p *v1.PodCertificateProjection) (Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	changed := make(chan struct{}, 1)
	holder := fmt.Sprintf("certificates/%s/%s/%d", src.podUID, src.volume, src.index)
	s.cfg.Objects.Hold(holder, []objects.Name{objects.CertificateRequests(pod)}, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer s.cfg.Objects.Release(holder)
	if s.read(src).asked == nil {
		if err := s.ask(ctx, pod, src, p); err != nil {
			return Credentials{}, err
		}
	} else if err := s.look(ctx, pod, src, true); err != nil {
		return Credentials{}, err
	}
	for {
		if err := s.look(ctx, pod, src, false); err != nil && ctx.Err() == nil {
			return Credentials{}, err
		}
		switch r := s.read(src); {
		case r.refused != nil:
			return Credentials{}, r.refused
		case r.held != nil:
			return r.held.Credentials, nil
		case r.asked == nil:
			return Credentials{}, fmt.Errorf("credential bundle is not issued yet: the PodCertificateRequest appears to have been deleted")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Credentials{}, fmt.Errorf("credential bundle is not issued yet")
		}
	}
}

// renew asks for the next certificate when it is time, and takes it when it is there.
func (s *Store) renew(ctx context.Context, pod *v1.Pod, src source, p *v1.PodCertificateProjection) error {
	if s.read(src).asked != nil {
		return s.look(ctx, pod, src, true)
	}
	if s.cfg.Now().Before(s.read(src).held.refreshAt) {
		return nil
	}
	return s.ask(ctx, pod, src, p)
}

// ask makes a key and asks for its certificate. The key is known before the request is, and lost with this process.
func (s *Store) ask(ctx context.Context, pod *v1.Pod, src source, p *v1.PodCertificateProjection) error {
	node := s.cfg.NodeUID()
	if node == "" {
		return fmt.Errorf("the API server has told nothing of node %q yet", pod.Spec.NodeName)
	}
	account, err := s.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("while fetching service account: %w", err)
	}
	key, proof, err := newRequest(p.KeyType)
	if err != nil {
		return err
	}
	made, err := s.cfg.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.SignerName, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: pod.Spec.ServiceAccountName, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(pod.Spec.NodeName), NodeUID: node, MaxExpirationSeconds: p.MaxExpirationSeconds, StubPKCS10Request: proof,
			UnverifiedUserAnnotations: p.UserAnnotations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	s.change(src, func(r *record) { r.asked = &question{key: key, name: made.Name, at: s.cfg.Now()} })
	return nil
}

// look takes the answer to what was asked, if there is one. sure: a request of which nothing is known is asked for, because nobody may tell that it is gone.
func (s *Store) look(ctx context.Context, pod *v1.Pod, src source, sure bool) error {
	asked := s.read(src).asked
	if asked == nil {
		return nil
	}
	request, err := s.find(ctx, pod, asked.name, sure && s.cfg.Now().Sub(asked.at) >= pause)
	switch {
	case err != nil:
		return fmt.Errorf("while getting PodCertificateRequest %q: %w", pod.Namespace+"/"+asked.name, err)
	case request == gone:
		// The next one is asked for when somebody wants it.
		s.change(src, func(r *record) { r.asked = nil })
		return nil
	case request == nil:
		return nil
	}
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			held, err := s.issued(asked, request)
			if err != nil {
				return err
			}
			s.change(src, func(r *record) { r.held, r.asked = held, nil })
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			s.refuse(pod, src, request, &c, "was denied", "denied")
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			s.refuse(pod, src, request, &c, "failed", "failed")
		}
	}
	return nil
}

// gone stands for a request that is not there.
var gone = &certificatesv1.PodCertificateRequest{}

// find is a request as it was last seen; nil: it has not been seen yet. Where it has to be known, the API server is asked.
func (s *Store) find(ctx context.Context, pod *v1.Pod, name string, known bool) (*certificatesv1.PodCertificateRequest, error) {
	all, err := objects.List[*certificatesv1.PodCertificateRequest](ctx, s.cfg.Objects, objects.CertificateRequests(pod))
	if err != nil {
		return nil, err
	}
	for _, request := range all {
		if request.Name == name {
			return request, nil
		}
	}
	if !known {
		return nil, nil
	}
	request, err := s.cfg.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	return request, err
}

// issued is what a signer has issued. The API server has checked it; what is not whole is an error here as well.
func (s *Store) issued(asked *question, request *certificatesv1.PodCertificateRequest) (*credentials, error) {
	status := &request.Status
	if status.BeginRefreshAt == nil || status.NotAfter == nil || status.CertificateChain == "" {
		return nil, fmt.Errorf("it says that it is issued, and has no certificate or no times")
	}
	begins := status.BeginRefreshAt.Time
	return &credentials{
		Credentials: Credentials{Key: asked.key, Chain: plain(status.CertificateChain)},
		begins:      begins, refreshAt: begins.Add(rand.N(spread)), ends: status.NotAfter.Time,
	}, nil
}

// refuse notes that there will be no certificate, and tells of it.
func (s *Store) refuse(pod *v1.Pod, src source, request *certificatesv1.PodCertificateRequest, c *metav1.Condition, told, word string) {
	s.change(src, func(r *record) {
		r.asked = nil
		r.refused = fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", word, c.Reason, c.Message)
	})
	s.cfg.Tell(pod, v1.EventTypeWarning, c.Type, fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", request.Namespace+"/"+request.Name, told, c.Reason, c.Message))
}

// warn tells people of a certificate that is not renewed in time, once each.
func (s *Store) warn(pod *v1.Pod, src source) {
	var late, ended bool
	now := s.cfg.Now()
	s.change(src, func(r *record) {
		if h := r.held; h != nil {
			late, ended = !h.late && now.After(h.begins.Add(overdue)), !h.ended && now.After(h.ends)
			h.late, h.ended = h.late || late, h.ended || ended
		}
	})
	if late {
		s.cfg.Tell(pod, v1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if ended {
		s.cfg.Tell(pod, v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}

// read is a copy of what is known of a source.
func (s *Store) read(src source) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[src]; r != nil {
		return *r
	}
	return record{}
}

// change changes what is known of a source.
func (s *Store) change(src source, how func(r *record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[src]
	if r == nil {
		r = &record{}
		s.records[src] = r
	}
	how(r)
}

// Due is when the first certificate in the pod's volumes wants to be looked at; zero: none does. One that is not held is due: an agent that was started anew has no keys.
func (s *Store) Due(pod *v1.Pod) (due time.Time) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for src := range sourcesIn(pod) {
		r := s.records[src]
		if r == nil {
			r = &record{}
			s.records[src] = r
		}
		at := r.due(now)
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// due is when a source is to be looked at; zero: whatever comes is told by a change of its request.
func (r *record) due(now time.Time) time.Time {
	switch h := r.held; {
	case r.refused != nil:
		return time.Time{}
	case h == nil:
		if now.Before(r.noted) {
			return r.noted
		}
		// If whoever is told now does not ask for it, it is due again after a while.
		r.noted = now.Add(retryPause)
		return now
	case r.asked == nil:
		return h.refreshAt
	case !h.late:
		return h.begins.Add(overdue + time.Second)
	case !h.ended:
		return h.ends.Add(time.Second)
	}
	return time.Time{}
}

// sourcesIn are the certificates that a pod's volumes show.
func sourcesIn(pod *v1.Pod) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, v := range pod.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for i, s := range v.Projected.Sources {
				if s.PodCertificate != nil && !yield(source{pod.UID, v.Name, i}) {
					return
				}
			}
		}
	}
}

// Forget drops the pod's keys and certificates.
func (s *Store) Forget(podUID types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for src := range s.records {
		if src.podUID == podUID {
			delete(s.records, src)
		}
	}
}
