package tokens

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
)

// AuthenticateToken implements authenticator.Token. A token of another issuer is no error: somebody else may know it.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	c, err := t.verify(token)
	if c == nil || err != nil {
		return nil, false, err
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = t.Audiences()
	}
	audiences := authenticator.Audiences(c.Audience)
	if c.ofSecret() && len(audiences) == 0 {
		audiences = t.Audiences()
	}
	audiences = audiences.Intersect(wanted)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", c.Audience, wanted)
	}
	if err := t.timely(c); err != nil {
		return nil, false, err
	}
	info, err := t.whose(ctx, c, token)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: info.UserInfo(), Audiences: audiences}, true, nil
}

// verify returns the claims of a token that this API server has signed; nil: another issuer's.
func (t *Tokens) verify(token string) (*claims, error) {
	key := sha256.Sum256([]byte(token))
	if known, ok := t.verified.Get(key); ok {
		return known.(*claims), nil
	}
	if !t.ours(token) {
		return nil, nil // neither is it ours nor is that an error
	}
	c := &claims{}
	if _, err := t.parser.ParseWithClaims(token, c, t.candidates); err != nil {
		return nil, errors.New("the signature of the service account token is not one of this API server's")
	}
	t.verified.Add(key, c, rememberedFor)
	return c, nil
}

// ours says, of a token that is not verified yet, whether it names an issuer of ours.
func (t *Tokens) ours(token string) bool {
	if strings.Count(token, ".") != 2 {
		return false
	}
	c := &claims{}
	if _, _, err := t.parser.ParseUnverified(token, c); err != nil {
		return false
	}
	return c.ofSecret() || slices.Contains(t.issuers, c.Issuer)
}

// candidates are the keys that may have signed a token: the one that it names, all if it names none.
func (t *Tokens) candidates(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, p := range t.keys.public {
		if id == "" || p.id == id {
			set.Keys = append(set.Keys, p.key)
		}
	}
	return set, nil
}

func (t *Tokens) timely(c *claims) error {
	validator := t.validator
	if c.ofSecret() {
		validator = t.endless
	}
	err := validator.Validate(c)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return errors.New("service account token is issued in the future")
	case err != nil:
		return fmt.Errorf("service account token claims could not be validated: %w", err)
	}
	return nil
}

// errInvalidated is all that the bearer of a token learns of an object that is gone.
var errInvalidated = errors.New("service account token has been invalidated")

func (t *Tokens) whose(ctx context.Context, c *claims, token string) (*serviceaccount.ServiceAccountInfo, error) {
	if c.ofSecret() {
		return t.held(ctx, c, token)
	}
	return t.alive(ctx, c)
}

// alive says who a token's service account is, if it and what the token is bound to are there.
func (t *Tokens) alive(ctx context.Context, c *claims) (*serviceaccount.ServiceAccountInfo, error) {
	k := &c.Kubernetes
	err := t.there(k.Account.UID, func(fresh bool) (metav1.Object, error) {
		return t.objects.ServiceAccount(ctx, k.Namespace, k.Account.Name, fresh)
	})
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", k.Namespace, k.Account.Name, err)
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace, Name: k.Account.Name, UID: string(k.Account.UID), CredentialID: tokenjwt.CredentialIDForJTI(c.ID),
	}
	switch {
	case k.Secret != nil:
		err = t.there(k.Secret.UID, func(fresh bool) (metav1.Object, error) {
			return t.objects.Secret(ctx, k.Namespace, k.Secret.Name, fresh)
		})
	case k.Pod != nil:
		info.PodName, info.PodUID = k.Pod.Name, string(k.Pod.UID)
		err = t.there(k.Pod.UID, func(fresh bool) (metav1.Object, error) { return t.objects.Pod(ctx, k.Namespace, k.Pod.Name, fresh) })
	case k.Node != nil:
		err = t.there(k.Node.UID, func(fresh bool) (metav1.Object, error) { return t.objects.Node(ctx, k.Node.Name, fresh) })
	}
	if err != nil {
		return nil, err
	}
	if k.Node != nil { // of a pod it tells where that runs, and whether the node is still there does not matter
		info.NodeName, info.NodeUID = k.Node.Name, string(k.Node.UID)
	}
	return info, nil
}

// there says that an object is there by its UID. What the cache lacks may only have been made a moment ago. An object that is being deleted counts until
// the time by which it was to be gone.
func (t *Tokens) there(uid types.UID, get func(fresh bool) (metav1.Object, error)) error {
	obj, err := get(false)
	if err != nil || obj.GetUID() != uid {
		obj, err = get(true)
	}
	switch {
	case apierrors.IsNotFound(err):
		return errInvalidated
	case err != nil:
		return err
	case obj.GetUID() != uid:
		return errInvalidated
	}
	if end := obj.GetDeletionTimestamp(); end != nil && end.Time.Before(t.now().Add(-leeway)) {
		return errInvalidated
	}
	return nil
}
