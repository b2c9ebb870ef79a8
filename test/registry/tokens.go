package registry

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tokens is a token server in the test's own process: anonymous callers, users with a password, and refresh tokens, by GET
// and by POST (OAuth2). Its tokens are signed, so that a real registry can check them.
type Tokens struct {
	// URL is the realm that a registry names; Issuer and Service go into the tokens.
	URL, Issuer, Service string
	// CertPEM is what a registry checks the tokens by.
	CertPEM []byte
	// Users are those that get tokens, with their passwords; Refresh are the refresh tokens that do. Without any, anybody does.
	Users   map[string]string
	Refresh []string
	// Life is for how long a token is said to be good; 0 is not said.
	Life time.Duration

	srv  *httptest.Server
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu    sync.Mutex
	fault Fault
	good  map[string]bool
	asked []TokenRequest
}

// TokenRequest is one that the token server got.
type TokenRequest struct {
	Method string
	Header http.Header
	// Form holds the parameters, of the query and of the body.
	Form map[string][]string
}

// NewTokens starts a token server that ends with the test. The caller sets the exported fields before it is asked.
func NewTokens(tb testing.TB) *Tokens {
	tb.Helper()
	ca := NewCA(tb)
	t := &Tokens{Issuer: "test issuer", Service: "test service", CertPEM: ca.PEM, cert: ca.cert, key: ca.key, good: map[string]bool{}}
	t.srv = httptest.NewServer(t)
	t.URL = t.srv.URL + "/token"
	tb.Cleanup(t.srv.Close)
	return t
}

// Misbehave replaces all answers; nil, and it behaves.
func (t *Tokens) Misbehave(f Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = f
}

// Requests are those so far.
func (t *Tokens) Requests() []TokenRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.asked)
}

// Expire makes all tokens so far worthless.
func (t *Tokens) Expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.good)
}

// Good says whether a request carries a token of this server that has not expired.
func (t *Tokens) Good(req *http.Request) bool {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	t.mu.Lock()
	defer t.mu.Unlock()
	return ok && t.good[token]
}

// Challenge is what a registry answers those who have no token.
func (t *Tokens) Challenge() string {
	return fmt.Sprintf("Bearer realm=%q,service=%q", t.URL, t.Service)
}

// ServeHTTP implements http.Handler.
func (t *Tokens) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	t.asked = append(t.asked, TokenRequest{Method: req.Method, Header: req.Header.Clone(), Form: maps.Clone(req.Form)})
	fault := t.fault
	t.mu.Unlock()
	if fault != nil {
		fault(w, req, t.serve)
		return
	}
	t.serve(w, req)
}

func (t *Tokens) serve(w http.ResponseWriter, req *http.Request) {
	subject, ok := t.subject(req)
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"details":"incorrect username or password"}`)
		return
	}
	token, err := t.Issue(subject, req.Form["scope"]...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer := map[string]any{"token": token, "access_token": token}
	if t.Life > 0 {
		answer["expires_in"] = int(t.Life / time.Second)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client may be gone
}

// subject is who asks.
func (t *Tokens) subject(req *http.Request) (string, bool) {
	if len(t.Users) == 0 && len(t.Refresh) == 0 {
		return "", true
	}
	if refresh := req.Form.Get("refresh_token"); refresh != "" {
		return "refreshed", slices.Contains(t.Refresh, refresh)
	}
	user, password, ok := req.BasicAuth()
	if req.Method == http.MethodPost {
		user, password, ok = req.PostForm.Get("username"), req.PostForm.Get("password"), true
	}
	want, known := t.Users[user]
	return user, ok && known && want == password
}

// Issue makes a token for somebody, with scopes like "repository:a/b:pull,push".
func (t *Tokens) Issue(subject string, scopes ...string) (string, error) {
	token, err := t.sign(subject, scopes)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good[token] = err == nil
	return token, err
}

// sign makes a token as docker's registry takes it: a JWT (RFC 7519) with ES256, and the scopes in its claim "access".
func (t *Tokens) sign(subject string, scopes []string) (string, error) {
	type access struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	}
	all := []access{}
	for _, s := range strings.Fields(strings.Join(scopes, " ")) {
		if p := strings.SplitN(s, ":", 3); len(p) == 3 {
			all = append(all, access{p[0], p[1], strings.Split(p[2], ",")})
		}
	}
	now := time.Now()
	header, err := json.Marshal(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(t.cert.Raw)}})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{"iss": t.Issuer, "sub": subject, "aud": t.Service, "iat": now.Unix(), "nbf": now.Unix() - 1,
		"exp": now.Add(time.Hour).Unix(), "jti": rand.Text(), "access": all})
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64(header) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, t.key, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + b64(signature[:]), nil
}
