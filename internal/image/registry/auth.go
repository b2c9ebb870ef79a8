package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
)

// Auth is what a caller may know to be let in by a registry: CRI's AuthConfig. At most one way is used, in this order:
// RegistryToken, IdentityToken, Username and Password, Auth.
//
// Credentials are sent to the registry that the reference names, or, with ServerAddress, to that host only. They are
// never sent to a mirror that the caller did not name, nor to where a host redirects.
type Auth struct {
	Username string
	Password string
	// Auth is base64 of "username:password".
	Auth string
	// IdentityToken is exchanged for an access token at the registry's token server (OAuth2 refresh token).
	IdentityToken string
	// RegistryToken is a bearer token that is sent to the registry as it is.
	RegistryToken string
	// ServerAddress is a host, or a URL of which the host counts.
	ServerAddress string
}

// Key tells apart the pulls of one reference by different callers, without holding what they know.
func (a *Auth) Key() string {
	if a == nil || *a == (Auth{}) {
		return ""
	}
	raw, err := json.Marshal(a)
	if err != nil {
		panic("registry: marshalling a struct of strings failed: " + err.Error()) //nolint:forbidigo // strings can be marshalled
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Check says what is wrong with credentials before any host is asked: InvalidArgument. Of nil it is nothing.
func (a *Auth) Check() error {
	if a == nil {
		return nil
	}
	_, _, err := a.basic()
	return err
}

// basic returns the user and the secret as containerd's authorizer takes them: an identity token has no user.
func (a *Auth) basic() (user, secret string, err error) {
	switch {
	case a.IdentityToken != "":
		return "", a.IdentityToken, nil
	case a.Username != "":
		return a.Username, a.Password, nil
	case a.Auth != "":
		raw, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			return "", "", fmt.Errorf("the registry credential \"auth\" is not base64: %w", errdefs.ErrInvalidArgument)
		}
		user, secret, ok := strings.Cut(string(raw), ":")
		if !ok {
			return "", "", fmt.Errorf("the registry credential \"auth\" is not base64 of user:password: %w", errdefs.ErrInvalidArgument)
		}
		return user, strings.TrimRight(secret, "\x00"), nil
	}
	return "", "", nil
}

// appliesTo says whether host may get the credentials, when registry is the host part of the reference.
func (a *Auth) appliesTo(host, registry string) bool {
	want := registry
	if a.ServerAddress != "" {
		want = a.ServerAddress
		if u, err := url.Parse(want); err == nil && u.Host != "" {
			want = u.Host
		}
	}
	return canonicalHost(host) == canonicalHost(want)
}

// canonicalHost unites the names under which the Docker Hub is known, and those of one host with and without the port of
// HTTPS.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ":443")
	switch host {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// bearer is an authorizer that sends one token, to the hosts it is for.
type bearer struct {
	auth     *Auth
	registry string
}

var _ docker.Authorizer = bearer{}

func (b bearer) Authorize(_ context.Context, req *http.Request) error {
	if b.auth.appliesTo(req.URL.Host, b.registry) {
		req.Header.Set("Authorization", "Bearer "+b.auth.RegistryToken)
	}
	return nil
}

// AddResponses is called after a 401: there is no other token to try.
func (bearer) AddResponses(context.Context, []*http.Response) error {
	return fmt.Errorf("the registry refused the token: %w", errdefs.ErrNotImplemented)
}
