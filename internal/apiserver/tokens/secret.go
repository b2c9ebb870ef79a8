package tokens

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// secretIssuer is the issuer of the tokens in secrets of the type kubernetes.io/service-account-token, for any API server. They are for that alone, have no
// end, and are good while they stand in their secret.
const secretIssuer = "kubernetes/serviceaccount"

// invalidSince is the label of a secret whose token counts no more: an administrator, or the cleaner of a Kubernetes cluster, has set it.
const invalidSince = "kubernetes.io/legacy-token-invalid-since"

// secretClaims are those of such a token. They name the secret, without a UID, because the token is what it holds.
type secretClaims struct {
	Namespace   string    `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	Secret      string    `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	AccountName string    `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID  types.UID `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// IssueForSecret makes the token that a secret of the type kubernetes.io/service-account-token holds.
func (t *Tokens) IssueForSecret(namespace string, account Ref, secret string) (string, error) {
	c := &claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: secretIssuer, Subject: serviceaccount.MakeUsername(namespace, account.Name)},
		secretClaims:     secretClaims{Namespace: namespace, Secret: secret, AccountName: account.Name, AccountUID: account.UID},
	}
	return t.sign(c)
}

// held says who a token is that a secret holds, if the secret does and the service account is there.
func (t *Tokens) held(ctx context.Context, c *claims, token string) (*serviceaccount.ServiceAccountInfo, error) {
	s := &c.secretClaims
	if s.Namespace == "" || s.Secret == "" || s.AccountName == "" || s.AccountUID == "" || c.Subject != serviceaccount.MakeUsername(s.Namespace, s.AccountName) {
		return nil, errors.New("service account token claims could not be validated")
	}
	holds := func(secret *corev1.Secret) bool {
		return secret.DeletionTimestamp == nil && subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 1
	}
	secret, err := t.objects.Secret(ctx, s.Namespace, s.Secret, false)
	if err != nil || !holds(secret) { // it may have been filled a moment ago
		secret, err = t.objects.Secret(ctx, s.Namespace, s.Secret, true)
	}
	switch {
	case apierrors.IsNotFound(err) || err == nil && !holds(secret):
		return nil, errInvalidated
	case err != nil:
		return nil, err
	}
	if since, set := secret.Labels[invalidSince]; set {
		return nil, fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid since %s. Use tokens from the TokenRequest API, "+
			"or take the label %s from the secret", s.Namespace, s.Secret, s.Namespace, s.AccountName, since, invalidSince)
	}
	err = t.there(s.AccountUID, func(fresh bool) (metav1.Object, error) {
		return t.objects.ServiceAccount(ctx, s.Namespace, s.AccountName, fresh)
	})
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", s.Namespace, s.AccountName, err)
	}
	return &serviceaccount.ServiceAccountInfo{Namespace: s.Namespace, Name: s.AccountName, UID: string(s.AccountUID)}, nil
}
