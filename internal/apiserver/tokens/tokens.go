package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
)

// DefaultIssuer is who signs tokens if nothing else is said.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Config is what Tokens are made of.
type Config struct {
	Keys *Keys
	// Issuers are the names by which this API server has signed: tokens of all of them are good, the first one is that of new ones. It is an https URL
	// where others find the OpenID Connect documents of the server, or ask for them. Empty: DefaultIssuer.
	Issuers []string
	// Objects are what service accounts and what tokens are bound to are looked up in.
	Objects Objects
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Objects reads objects as a cache has them, or, fresh, as they are in the store. What is not there is a NotFound of the API.
type Objects interface {
	ServiceAccount(ctx context.Context, namespace, name string, fresh bool) (*corev1.ServiceAccount, error)
	Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error)
	Secret(ctx context.Context, namespace, name string, fresh bool) (*corev1.Secret, error)
	Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error)
}

// Tokens makes and verifies tokens. It is safe for concurrent use.
type Tokens struct {
	keys      *Keys
	issuers   []string
	objects   Objects
	now       func() time.Time
	parser    *jwt.Parser
	validator *jwt.Validator
	// endless validates tokens that may have no end.
	endless *jwt.Validator
	// verified are the claims of tokens whose signatures were right, by the hashes of the tokens.
	verified *utilcache.LRUExpireCache
}

var _ authenticator.Token = (*Tokens)(nil)

const (
	// leeway is how far the clocks of those who make and who verify tokens may be apart, as a Kubernetes API server has it.
	leeway = time.Minute
	// rememberedTokens is of how many tokens the claims are remembered; each is about a kilobyte. rememberedFor is for how long.
	rememberedTokens = 1024
	rememberedFor    = time.Hour
)

// New makes Tokens.
func New(cfg Config) (*Tokens, error) {
	if len(cfg.Issuers) == 0 {
		cfg.Issuers = []string{DefaultIssuer}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	for _, issuer := range cfg.Issuers {
		if err := checkIssuer(issuer); err != nil {
			return nil, fmt.Errorf("issuer %q of service account tokens: %w", issuer, err)
		}
	}
	return &Tokens{
		keys: cfg.Keys, issuers: cfg.Issuers, objects: cfg.Objects, now: cfg.Now,
		parser: jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithoutClaimsValidation()),
		validator: jwt.NewValidator(jwt.WithLeeway(leeway), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
			jwt.WithTimeFunc(cfg.Now)),
		endless:  jwt.NewValidator(jwt.WithLeeway(leeway), jwt.WithIssuedAt(), jwt.WithTimeFunc(cfg.Now)),
		verified: utilcache.NewLRUExpireCache(rememberedTokens),
	}, nil
}

// checkIssuer is OpenID Connect Discovery 1.0, section 3 (issuer).
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("it must be a URL with the scheme https and a host, without a user, a query or a fragment")
	}
	return nil
}

// Audiences are those of the API server itself: of a token that names none of them, it is not the audience.
func (t *Tokens) Audiences() authenticator.Audiences { return t.issuers }

// Issue makes a token for audiences that is good from the given time on for a life. credentialID names it in user infos and logs.
func (t *Tokens) Issue(s Subject, audiences []string, from time.Time, life time.Duration) (token, credentialID string, err error) {
	c := newClaims(t.issuers[0], audiences, s, from, life)
	token, err = t.sign(c)
	return token, tokenjwt.CredentialIDForJTI(c.ID), err
}

func (t *Tokens) sign(c *claims) (string, error) {
	unsigned := jwt.NewWithClaims(jwt.SigningMethodES256, c)
	unsigned.Header = map[string]any{"alg": jwt.SigningMethodES256.Alg(), "kid": t.keys.signer}
	return unsigned.SignedString(t.keys.signing)
}
