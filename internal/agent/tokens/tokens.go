// Package tokens holds the service account tokens that volumes of the node's pods show.
//
// It guarantees that a token that is given is one of the pod, holds for some time still, and is asked for anew in time; none outlives its pod here.
package tokens

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Store is the set of tokens. It is safe for concurrent use.
type Store struct {
	client kubernetes.Interface
	log    *slog.Logger

	mu   sync.Mutex // guards what follows
	held map[tokenKey]token
}

// New makes an empty store.
func New(client kubernetes.Interface, log *slog.Logger) *Store {
	return &Store{client: client, log: log, held: map[tokenKey]token{}}
}

// tokenKey says for what a token was asked for; of one pod no two volumes differ in anything else.
type tokenKey struct {
	podUID         types.UID
	audience, path string
	seconds        int64
}

// token is a token, or, where value is empty, that there is none.
type token struct {
	value           string
	refreshAt, ends time.Time
}

// A token is asked for anew when four fifths of its life are over, and after a day at the latest, as a kubelet does it. When that fails it is tried again
// after a while, and the old one serves until its end.
const (
	longestUse   = 24 * time.Hour
	refreshPause = 30 * time.Second
)

func keyOf(pod *v1.Pod, src *v1.ServiceAccountTokenProjection) tokenKey {
	key := tokenKey{podUID: pod.UID, audience: src.Audience, path: src.Path}
	if src.ExpirationSeconds != nil {
		key.seconds = *src.ExpirationSeconds
	}
	return key
}

// Token returns a token of the pod's service account, bound to the pod: the held one until it is due, then a new one.
func (s *Store) Token(ctx context.Context, pod *v1.Pod, src *v1.ServiceAccountTokenProjection) (string, error) {
	key := keyOf(pod, src)
	s.mu.Lock()
	old := s.held[key]
	s.mu.Unlock()
	if old.value != "" && time.Now().Before(old.refreshAt) {
		return old.value, nil
	}
	made, err := s.request(ctx, pod, src)
	if err != nil {
		now := time.Now()
		if old.value == "" || !now.Before(old.ends) || ctx.Err() != nil {
			return "", err
		}
		s.log.Warn("a token could not be renewed; it is tried again, and the old one serves until its end",
			"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "error", err, "ends", old.ends)
		made = old
		made.refreshAt = now.Add(refreshPause)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[key] = made
	return made.value, nil
}

func (s *Store) request(ctx context.Context, pod *v1.Pod, src *v1.ServiceAccountTokenProjection) (token, error) {
	req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: src.ExpirationSeconds,
		BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if src.Audience != "" {
		req.Spec.Audiences = []string{src.Audience}
	}
	account := pod.Spec.ServiceAccountName
	asked := time.Now()
	resp, err := s.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, req, metav1.CreateOptions{})
	if err != nil {
		return token{}, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, account, err)
	}
	life := resp.Status.ExpirationTimestamp.Sub(asked)
	return token{value: resp.Status.Token, refreshAt: asked.Add(min(life*4/5, longestUse)), ends: asked.Add(life)}, nil
}

// Due is when the first of the tokens in the pod's volumes wants to be renewed; zero: there is none in them. One that is not held is due: an agent
// that was started anew does not know how old those are that its pods have.
func (s *Store) Due(pod *v1.Pod) (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for src := range tokensIn(pod) {
		key := keyOf(pod, src)
		t := s.held[key]
		if t.value == "" && !now.Before(t.refreshAt) {
			// If whoever is told now does not ask for it, it is due again after a while.
			s.held[key] = token{refreshAt: now.Add(refreshPause)}
			t.refreshAt = now
		}
		if due.IsZero() || t.refreshAt.Before(due) {
			due = t.refreshAt
		}
	}
	return due
}

// tokensIn are the tokens that a pod's volumes show.
func tokensIn(pod *v1.Pod) iter.Seq[*v1.ServiceAccountTokenProjection] {
	return func(yield func(*v1.ServiceAccountTokenProjection) bool) {
		for _, v := range pod.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil && !yield(s.ServiceAccountToken) {
					return
				}
			}
		}
	}
}

// Forget drops the pod's tokens; they end with the pod.
func (s *Store) Forget(podUID types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.held {
		if k.podUID == podUID {
			delete(s.held, k)
		}
	}
}
