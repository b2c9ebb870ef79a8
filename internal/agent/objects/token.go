package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokens are the service account tokens that pods' volumes hold.
type tokens struct {
	mu   sync.Mutex // guards what follows
	held map[tokenKey]token
}

type tokenKey struct{ podUID, audience, path string }

type token struct {
	value     string
	refreshAt time.Time
}

// Token returns a token of the pod's service account, bound to the pod: the held one until four fifths of its life are
// over, then a new one.
func (s *Store) Token(ctx context.Context, pod *v1.Pod, src *v1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{string(pod.UID), src.Audience, src.Path}
	s.tokens.mu.Lock()
	t, ok := s.tokens.held[key]
	s.tokens.mu.Unlock()
	if ok && time.Now().Before(t.refreshAt) {
		return t.value, nil
	}
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
		return "", fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, account, err)
	}
	life := resp.Status.ExpirationTimestamp.Sub(asked)
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	s.tokens.held[key] = token{resp.Status.Token, asked.Add(life * 4 / 5)}
	return resp.Status.Token, nil
}

// TokensDue is when the first of the pod's tokens wants to be renewed; zero: it holds none.
func (s *Store) TokensDue(podUID string) time.Time {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	var due time.Time
	for k, t := range s.tokens.held {
		if k.podUID == podUID && (due.IsZero() || t.refreshAt.Before(due)) {
			due = t.refreshAt
		}
	}
	return due
}

// forgetTokens drops the pod's tokens; they end with the pod.
func (s *Store) forgetTokens(podUID string) {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	for k := range s.tokens.held {
		if k.podUID == podUID {
			delete(s.tokens.held, k)
		}
	}
}
