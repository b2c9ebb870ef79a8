package tokens

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// withSecret are objects with a secret, whose cache may have an older one.
type withSecret struct {
	objects
	secret, cached *corev1.Secret
}

func (o *withSecret) Secret(_ context.Context, _, name string, fresh bool) (*corev1.Secret, error) {
	s := o.secret
	if !fresh && o.cached != nil {
		s = o.cached
	}
	if s == nil || s.Name != name {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return s, nil
}

// The token of a secret has no end, and is good while the secret holds it and its account is there.
func TestTokensOfSecrets(t *testing.T) {
	o := &withSecret{}
	now := time.Now()
	made, err := New(Config{Keys: ensure(t, t.TempDir()), Objects: o, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	token, err := made.IssueForSecret("ns", Ref{"robot", "1"}, "bot")
	if err != nil {
		t.Fatal(err)
	}
	other, err := made.IssueForSecret("ns", Ref{"robot", "1"}, "bot")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := made.IssueForSecret("ns", Ref{Name: "robot"}, "bot")
	if err != nil {
		t.Fatal(err)
	}
	now = now.AddDate(30, 0, 0)
	holding := func(token string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bot"}, Data: map[string][]byte{"token": []byte(token)}}
	}
	for name, tc := range map[string]struct {
		token  string
		change func()
		want   string // empty: it is good
	}{
		"good":                   {token, nil, ""},
		"the cache is late":      {token, func() { o.cached = holding("") }, ""},
		"the secret is gone":     {token, func() { o.secret = nil }, "invalidated"},
		"the secret goes":        {token, func() { o.secret.DeletionTimestamp = &metav1.Time{Time: now} }, "invalidated"},
		"the secret is empty":    {token, func() { o.secret.Data = nil }, "invalidated"},
		"it holds another":       {other, nil, "invalidated"},
		"it was marked":          {token, func() { o.secret.Labels = map[string]string{invalidSince: "2026-01-01"} }, "marked invalid since 2026-01-01"},
		"the account is gone":    {token, func() { o.account.UID = "" }, "invalidated"},
		"the account is another": {token, func() { o.account.UID = "9" }, "invalidated"},
		"it names no account":    {nobody, func() { o.secret = holding(nobody) }, "could not be validated"},
	} {
		o.account, o.secret, o.cached = metav1.ObjectMeta{Name: "robot", UID: "1"}, holding(token), nil
		if tc.change != nil {
			tc.change()
		}
		resp, ok, err := made.AuthenticateToken(t.Context(), tc.token)
		switch {
		case tc.want == "" && (err != nil || !ok || resp.User.GetName() != "system:serviceaccount:ns:robot" || resp.User.GetUID() != "1"):
			t.Errorf("%s: %v, %v", name, ok, err)
		case tc.want != "" && (ok || err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, %v; want %q", name, ok, err, tc.want)
		}
	}
	o.account, o.secret = metav1.ObjectMeta{Name: "robot", UID: "1"}, holding(token)
	if _, ok, err := made.AuthenticateToken(authenticator.WithAudiences(t.Context(), []string{"vault"}), token); ok || err == nil {
		t.Errorf("for another audience: %v, %v", ok, err)
	}
	stranger, err := New(Config{Keys: ensure(t, t.TempDir()), Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := stranger.AuthenticateToken(t.Context(), token); ok || err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("with another's key: %v, %v", ok, err)
	}
}
