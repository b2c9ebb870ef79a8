package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
)

// authorizer tells one host who asks. Basic authentication and tokens are containerd's; what is added:
//   - nothing that is for this host goes to another one to which it redirects;
//   - a token that is refused within a pull (it has expired) is fetched anew, once a request, whatever the registry says
//     of its reason;
//   - a password that is refused is not sent again;
//   - challenges are read in all the forms that registries write.
type authorizer struct {
	docker.Authorizer
	own http.Header // what hosts.toml adds to every request to this host
}

// authorizer makes the authorizer of a host.
func (rs *Session) authorizer(host docker.RegistryHost) docker.Authorizer {
	a := rs.auth
	applies := a != nil && a.appliesTo(host.Host, rs.registry)
	if applies && a.RegistryToken != "" {
		return &authorizer{Authorizer: bearer{auth: a, registry: rs.registry}, own: host.Header}
	}
	credentials := func(asked string) (user, secret string, err error) {
		if a == nil || !a.appliesTo(asked, rs.registry) {
			return "", "", nil
		}
		return a.basic()
	}
	return &authorizer{own: host.Header, Authorizer: docker.NewDockerAuthorizer(docker.WithAuthCreds(credentials),
		docker.WithAuthClient(tokenClient(host)), docker.WithAuthHeader(host.Header))}
}

func (a *authorizer) Authorize(ctx context.Context, req *http.Request) error {
	if from := firstRequest(req).URL; !sameOrigin(from, req.URL) {
		a.strip(req.Header)
		if downgrade(from, req.URL) {
			return nil
		}
	}
	err := a.Authorizer.Authorize(ctx, req)
	if err == nil || ctx.Err() != nil {
		return err
	}
	var status remoteerrors.ErrUnexpectedStatus
	switch {
	case errors.As(err, &status) && status.StatusCode >= 400 && status.StatusCode < 500 && !retryable(status.StatusCode):
		return fmt.Errorf("the token server refuses: %w: %w", err, errdefs.ErrPermissionDenied)
	case errdefs.Resolve(err) == errdefs.ErrUnknown && classOf(err) == nil:
		return fmt.Errorf("the token server of %s: %w: %w", req.URL.Host, err, errdefs.ErrUnavailable)
	}
	return err
}

// strip removes what one host must not learn of another.
func (a *authorizer) strip(h http.Header) {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Cookie2"} {
		h.Del(name)
	}
	for name := range a.own {
		h.Del(name)
	}
}

func (a *authorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	last := responses[len(responses)-1]
	sent := last.Request.Header.Get("Authorization")
	if sent == a.own.Get("Authorization") {
		sent = "" // of hosts.toml: the caller's credentials have not been tried
	}
	scheme, _, _ := strings.Cut(sent, " ")
	if strings.EqualFold(scheme, "Basic") {
		return fmt.Errorf("%s refuses the credentials: %w", last.Request.URL.Host, docker.ErrInvalidAuthorization)
	}
	usable, schemes := usableChallenges(last, strings.EqualFold(scheme, "Bearer"))
	if len(usable) == 0 {
		return fmt.Errorf("%s answers %s and names no way to authenticate that can be gone (it names %q; basic, and bearer with a realm, can be): %w",
			last.Request.URL.Host, last.Status, schemes, docker.ErrInvalidAuthorization)
	}
	last.Header.Del("Www-Authenticate")
	for _, c := range usable {
		last.Header.Add("Www-Authenticate", c.String())
	}
	return a.Authorizer.AddResponses(ctx, responses)
}

// tokenClient is a host's client for asking its token server. Where that one redirects to, nothing follows that tells who
// asks; and nothing of it is sent in clear when the registry itself is not.
func tokenClient(host docker.RegistryHost) *http.Client {
	c := *host.Client
	c.Transport = &tokenTransport{registry: &url.URL{Scheme: host.Scheme, Host: host.Host}, next: c.Transport}
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		from := via[0].URL
		if sameOrigin(from, req.URL) {
			return nil
		}
		if req.Body != nil && req.Body != http.NoBody {
			return fmt.Errorf("the token server %s redirects credentials to %s://%s, which does not get them: %w", from.Host, req.URL.Scheme, req.URL.Host, errdefs.ErrPermissionDenied)
		}
		(&authorizer{own: host.Header}).strip(req.Header)
		return nil
	}
	return &c
}

// tokenTransport refuses to send credentials in clear for a registry that is asked over TLS.
type tokenTransport struct {
	registry *url.URL
	next     http.RoundTripper
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	secret := req.Method == http.MethodPost || req.Header.Get("Authorization") != ""
	if secret && downgrade(t.registry, req.URL) && !docker.IsLocalhost(req.URL.Host) {
		return nil, fmt.Errorf("%s names a token server without TLS, %s, which does not get credentials: %w", t.registry.Host, req.URL.Host, errdefs.ErrPermissionDenied)
	}
	// What the token server does is done by the registry that names it: if another host follows that one, it is asked.
	return t.next.RoundTrip(req.WithContext(context.WithValue(req.Context(), askedForKey{}, t.registry.Host)))
}

func downgrade(from, to *url.URL) bool { return from.Scheme == "https" && to.Scheme != "https" }

// sameOrigin says whether what was for one URL may be sent to another.
func sameOrigin(from, to *url.URL) bool {
	return strings.EqualFold(from.Hostname(), to.Hostname()) && port(from) == port(to) && !downgrade(from, to)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
