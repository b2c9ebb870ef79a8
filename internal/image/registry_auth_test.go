package image_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image"
	registryclient "monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/test/registry"
)

// guarded is a registry that lets in who has a token of the server.
func guarded(t *testing.T) (*registry.Registry, *registry.Tokens, string) {
	t.Helper()
	r, tokens := registry.New(t), registry.NewTokens(t)
	ref := r.Push("a/two", "v1", build(t, two("", "guarded")))
	r.Guard(func(req *http.Request) (bool, []string) { return tokens.Good(req), []string{tokens.Challenge()} })
	return r, tokens, ref
}

// statuses are the answers of a registry in order.
func statuses(r *registry.Registry) (all []int) {
	for _, q := range r.Requests(registry.Any) {
		all = append(all, q.Status)
	}
	return all
}

// Tokens are asked for as the caller's credentials allow, with the repository's scope, once a pull.
func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		auth   *registryclient.Auth
		users  map[string]string
		fresh  []string
		method string
		want   map[string]string // of the token server's last request
	}{
		"anonymous":            {nil, nil, nil, "GET", map[string]string{"service": "test service"}},
		"user and password":    {&registryclient.Auth{Username: "u", Password: "p"}, map[string]string{"u": "p"}, nil, "POST", map[string]string{"grant_type": "password", "username": "u"}},
		"base64":               {&registryclient.Auth{Auth: base64.StdEncoding.EncodeToString([]byte("u:p"))}, map[string]string{"u": "p"}, nil, "POST", map[string]string{"grant_type": "password", "username": "u"}},
		"identity token":       {&registryclient.Auth{IdentityToken: "idt"}, nil, []string{"idt"}, "POST", map[string]string{"grant_type": "refresh_token", "refresh_token": "idt"}},
		"identity before user": {&registryclient.Auth{IdentityToken: "idt", Username: "u", Password: "p"}, nil, []string{"idt"}, "POST", map[string]string{"grant_type": "refresh_token"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, tokens, ref := guarded(t)
			tokens.Users, tokens.Refresh = c.users, c.fresh
			f := openParallel(t)
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: c.auth})
			if err != nil || f.read(img, "etc/shared") != "guarded" {
				t.Fatalf("%+v %v", img, err)
			}
			asked := tokens.Requests()
			if len(asked) != 1 || asked[0].Method != c.method {
				t.Fatalf("the token server was asked %d times: %+v", len(asked), asked)
			}
			for k, v := range c.want {
				if got := asked[0].Form[k]; !slices.Equal(got, []string{v}) {
					t.Errorf("%s is %q, want %q", k, got, v)
				}
			}
			if got := asked[0].Form["scope"]; !slices.Equal(got, []string{"repository:a/two:pull"}) {
				t.Errorf("scope %q", got)
			}
			// 401 once; then the token is good for the manifest twice (HEAD, GET), the configuration and two layers.
			if got := statuses(r); !slices.Equal(got, []int{401, 200, 200, 200, 200, 200}) {
				t.Errorf("answers %v", got)
			}
		})
	}
}

// A token server that knows only GET is asked by GET, with basic authentication.
func TestTokenServerWithoutPost(t *testing.T) {
	for _, status := range []int{400, 401, 404, 405} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			_, tokens, ref := guarded(t)
			tokens.Users = map[string]string{"u": "p"}
			tokens.Misbehave(func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
				if req.Method == http.MethodPost {
					w.WriteHeader(status)
					return
				}
				serve(w, req)
			})
			f := openParallel(t)
			if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: &registryclient.Auth{Username: "u", Password: "p"}}); err != nil {
				t.Error(err)
			}
			if n := len(tokens.Requests()); n != 2 {
				t.Errorf("the token server was asked %d times", n)
			}
		})
	}
}

// What a token server does wrong fails the pull with its own words, in few requests; what it does wrong for a while does not.
func TestTokenServerFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault registry.Fault
		auth  *registryclient.Auth
		class func(error) bool
		says  []string
		most  int
	}{
		"wrong password":  {nil, &registryclient.Auth{Username: "u", Password: "wrong"}, errdefs.IsPermissionDenied, []string{"401", "incorrect username or password"}, 2},
		"wrong identity":  {nil, &registryclient.Auth{IdentityToken: "wrong"}, errdefs.IsPermissionDenied, []string{"401", "incorrect username or password"}, 2},
		"invalid_grant":   {registry.Answer(400, "application/json", `{"error":"invalid_grant","error_description":"the token was revoked"}`), &registryclient.Auth{IdentityToken: "idt"}, errdefs.IsPermissionDenied, []string{"invalid_grant: the token was revoked"}, 2},
		"forbidden":       {registry.Refuse(403, "DENIED", "not for you"), nil, errdefs.IsPermissionDenied, []string{"403", "denied: not for you"}, 1},
		"a web page":      {registry.Answer(200, "text/html", "<html>log in</html>"), nil, errdefs.IsUnavailable, []string{"token server"}, 1},
		"an empty answer": {registry.Answer(200, "application/json", ""), nil, errdefs.IsUnavailable, []string{"token server"}, 1},
		"no token in it":  {registry.Answer(200, "application/json", "{}"), nil, errdefs.IsUnavailable, []string{"did not include a token"}, 1},
		"an endless one":  {registry.Answer(200, "application/json", `{"token":"`+strings.Repeat("x", 2<<20)), nil, errdefs.IsInvalidArgument, []string{"longer than"}, 1},
		"503 for ever":    {registry.Status(503), nil, errdefs.IsUnavailable, []string{"503"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, tokens, ref := guarded(t)
			tokens.Users, tokens.Refresh = map[string]string{"u": "p"}, []string{"x"}
			tokens.Misbehave(c.fault)
			f := openParallel(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: c.auth})
			mustFail(t, err, c.class, append(c.says, ref)...)
			if n := len(tokens.Requests()); n > c.most {
				t.Errorf("the token server was asked %d times", n)
			}
			if got := statuses(r); !slices.Equal(got, []int{401}) {
				t.Errorf("answers %v", got)
			}
			if err != nil && (strings.Contains(err.Error(), "wrong") || strings.Contains(err.Error(), "idt")) {
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
	t.Run("503 for a while", func(t *testing.T) {
		t.Parallel()
		_, tokens, ref := guarded(t)
		left := 2
		tokens.Misbehave(func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
			if left--; left >= 0 {
				w.WriteHeader(503)
				return
			}
			serve(w, req)
		})
		openParallel(t).pull(ref)
	})
}

// A token that expires while layers are fetched is fetched anew, whether or not the registry says that this is why.
func TestTokenExpiresWithinAPull(t *testing.T) {
	for name, extra := range map[string]string{"without a reason": "", "with one": `,error="invalid_token"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, tokens, ref := guarded(t)
			r.Guard(func(req *http.Request) (bool, []string) {
				return tokens.Good(req), []string{tokens.Challenge() + extra}
			})
			r.Misbehave(registry.Rule{Of: registry.Manifests, Method: http.MethodGet, Fault: registry.Do(func(*http.Request) { tokens.Expire() })})
			f := openParallel(t)
			f.pull(ref)
			if n := len(tokens.Requests()); n < 2 || n > 3 { // two layers may ask side by side
				t.Errorf("the token server was asked %d times", n)
			}
		})
	}
	t.Run("never good", func(t *testing.T) {
		t.Parallel()
		r, tokens, ref := guarded(t)
		r.Guard(func(*http.Request) (bool, []string) { return false, []string{tokens.Challenge()} })
		f := openParallel(t)
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		mustFail(t, err, errdefs.IsPermissionDenied, ref, "401")
		if got := statuses(r); !slices.Equal(got, []int{401, 401}) {
			t.Errorf("answers %v", got)
		}
	})
	t.Run("as it said", func(t *testing.T) {
		t.Parallel()
		r, tokens, ref := guarded(t)
		tokens.Life = time.Second
		r.Misbehave(registry.Rule{Of: registry.Manifests, Method: http.MethodGet, Fault: registry.Slow(100, 200*time.Millisecond)})
		f := openParallel(t)
		f.pull(ref)
		if got := statuses(r); slices.Contains(got[1:], 401) {
			t.Errorf("an expired token was sent: %v", got)
		}
		if n := len(tokens.Requests()); n < 2 {
			t.Errorf("the token server was asked %d times", n)
		}
	})
}

// The ways in which registries and their proxies write challenges.
func TestChallenges(t *testing.T) {
	for name, c := range map[string]struct {
		challenges []string // URL is the token server
		pulled     bool
		says       string
	}{
		"lower case":             {[]string{`bearer realm="URL",service="test service"`}, true, ""},
		"upper case":             {[]string{`BEARER REALM="URL",SERVICE="test service"`}, true, ""},
		"spaces":                 {[]string{`Bearer   realm = "URL" ,  service = "test service" `}, true, ""},
		"no quotes":              {[]string{`Bearer realm=URL,service=x`}, true, ""},
		"single quotes":          {[]string{`Bearer realm='URL',service='test service'`}, true, ""},
		"no service":             {[]string{`Bearer realm="URL"`}, true, ""},
		"an empty scope":         {[]string{`Bearer realm="URL",service="s",scope=""`}, true, ""},
		"a scope":                {[]string{`Bearer realm="URL",service="s",scope="repository:a/two:pull"`}, true, ""},
		"a trailing comma":       {[]string{`Bearer realm="URL",`}, true, ""},
		"basic in the same line": {[]string{`Basic realm="r", Bearer realm="URL",service="s"`}, true, ""},
		"basic in another line":  {[]string{`Basic realm="r"`, `Bearer realm="URL",service="s"`}, true, ""},
		"unknown ones first":     {[]string{`Negotiate`, `NTLM abc==, Bearer realm="URL"`}, true, ""},
		"a relative realm":       {[]string{`Bearer realm="/v2/token"`}, true, ""},
		"none":                   {nil, false, "names no way to authenticate"},
		"only unknown ones":      {[]string{`Negotiate`, `Digest realm="x"`}, false, `["Negotiate" "Digest"]`},
		"no realm":               {[]string{`Bearer service="s"`}, false, "names no way to authenticate"},
		"a realm that is none":   {[]string{`Bearer realm="http://[::1"`}, false, "names no way to authenticate"},
		"another protocol":       {[]string{`Bearer realm="ftp://URL"`}, false, "unsupported protocol scheme"},
		"an open quote":          {[]string{`Bearer realm="URL`}, true, ""},
		"garbage":                {[]string{"==,,;\" %&", `=,Bearer`}, false, "names no way to authenticate"},
		"basic, and nobody":      {[]string{`Basic realm="r"`}, false, "no basic auth credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, tokens, ref := guarded(t)
			var challenges []string
			for _, ch := range c.challenges {
				challenges = append(challenges, strings.ReplaceAll(ch, "URL", tokens.URL))
			}
			r.Guard(func(req *http.Request) (bool, []string) {
				return tokens.Good(req) || req.URL.Path == "/v2/token", challenges
			})
			r.Misbehave(registry.Rule{Of: registry.Other, Fault: func(w http.ResponseWriter, req *http.Request, _ http.HandlerFunc) { tokens.ServeHTTP(w, req) }})
			f := openParallel(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			if c.pulled {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustFail(t, err, func(error) bool { return errdefs.IsPermissionDenied(err) || errdefs.IsUnavailable(err) }, ref, c.says)
			if n := len(statuses(r)); n > 5 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A password that is refused is sent once: registries lock accounts.
func TestWrongPasswordIsSentOnce(t *testing.T) {
	r := registry.New(t)
	ref := r.Push("a/two", "v1", build(t, two("", "x")))
	var sent []string
	r.Guard(func(req *http.Request) (bool, []string) {
		if a := req.Header.Get("Authorization"); a != "" {
			sent = append(sent, a)
		}
		return false, []string{`Basic realm="r"`}
	})
	f := open(t)
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: &registryclient.Auth{Username: "u", Password: "wrong"}})
	mustFail(t, err, errdefs.IsPermissionDenied, ref, "refuses the credentials", "401")
	if len(sent) != 1 || len(r.Requests(registry.Any)) != 2 {
		t.Errorf("sent %q in %d requests", sent, len(r.Requests(registry.Any)))
	}
}

// Credentials in hosts.toml are sent to that host from the first request on; those of a pull go before them.
func TestCredentialsOfHostsToml(t *testing.T) {
	r := registry.New(t)
	r.Push("a/two", "v1", build(t, two("", "x")))
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	admits := basic("file:secret")
	r.Guard(func(req *http.Request) (bool, []string) {
		return slices.Equal(req.Header.Values("Authorization"), []string{admits}), []string{`Basic realm="r"`}
	})
	f := open(t)
	f.hosts("registry.example", fmt.Sprintf("server = \"http://%s\"\n[header]\n  authorization = %q\n", r.Addr, admits))
	f.pull("registry.example/a/two:v1")
	if got := statuses(r); slices.Contains(got, 401) {
		t.Errorf("answers %v", got)
	}
	// The registry now wants what only the caller knows.
	admits = basic("u:p")
	r.Forget()
	if _, err := f.Pull(f.ctx, image.PullRequest{Ref: "registry.example/a/two:v1", Auth: &registryclient.Auth{Username: "u", Password: "p", ServerAddress: r.Addr}}); err != nil {
		t.Error(err)
	}
	if got := statuses(r); !slices.Equal(got, []int{401, 200}) {
		t.Errorf("answers %v", got)
	}
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: "registry.example/a/two:v1"})
	mustFail(t, err, errdefs.IsPermissionDenied, "401")
	if strings.Contains(err.Error()+f.logs.String(), "secret") || strings.Contains(err.Error()+f.logs.String(), "ZmlsZTpzZWNyZXQ") {
		t.Error("the error or the log tells the secret")
	}
}

// Nothing that is for a registry goes to where it redirects, not even to another port of the same host.
func TestRedirectsGetNoCredentials(t *testing.T) {
	storage := registry.New(t)
	b := build(t, two("", "stored elsewhere"))
	storage.Push("a/two", "v1", b)
	for name, c := range map[string]struct {
		auth  *registryclient.Auth
		hosts string
		guard func(*registry.Tokens) registry.Guard
	}{
		"basic": {&registryclient.Auth{Username: "u", Password: "p"}, "", func(*registry.Tokens) registry.Guard {
			return func(req *http.Request) (bool, []string) {
				_, p, _ := req.BasicAuth()
				return p == "p", []string{`Basic realm="r"`}
			}
		}},
		"token": {nil, "", func(tokens *registry.Tokens) registry.Guard {
			return func(req *http.Request) (bool, []string) { return tokens.Good(req), []string{tokens.Challenge()} }
		}},
		"registry token": {&registryclient.Auth{RegistryToken: "rt"}, "", func(*registry.Tokens) registry.Guard {
			return func(req *http.Request) (bool, []string) { return req.Header.Get("Authorization") == "Bearer rt", nil }
		}},
		"header of hosts.toml": {nil, "x-api-key = \"k\"\n  cookie = \"c\"", func(*registry.Tokens) registry.Guard {
			return func(req *http.Request) (bool, []string) { return req.Header.Get("X-Api-Key") == "k", nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, tokens := registry.New(t), registry.NewTokens(t)
			r.Push("a/two", "v1", b)
			r.Guard(c.guard(tokens))
			r.Misbehave(registry.Rule{Of: registry.Blobs, Fault: registry.Redirect("http://"+storage.Addr, 307)})
			storage.Forget()
			f := openParallel(t)
			ref := r.Addr + "/a/two:v1"
			if c.hosts != "" {
				f.hosts(strings.ReplaceAll(r.Addr, ":", "_")+"_", fmt.Sprintf("server = \"http://%s\"\n[header]\n  %s\n", r.Addr, c.hosts))
			}
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: c.auth})
			if err != nil || f.read(img, "etc/shared") != "stored elsewhere" {
				t.Fatalf("%+v %v", img, err)
			}
			got := storage.Requests(registry.Any)
			if len(got) != 3 {
				t.Errorf("%d requests for two layers and a configuration", len(got))
			}
			for _, q := range got {
				for _, name := range []string{"Authorization", "X-Api-Key", "Cookie"} {
					if v := q.Header.Get(name); v != "" {
						t.Errorf("the storage was told %s: %s", name, v)
					}
				}
			}
		})
	}
}

// A token server that redirects what a caller knows to another server fails the pull.
func TestTokenServerRedirects(t *testing.T) {
	other := registry.NewTokens(t)
	for name, auth := range map[string]*registryclient.Auth{"password": {Username: "u", Password: "p"}, "identity token": {IdentityToken: "idt"}} {
		t.Run(name, func(t *testing.T) {
			_, tokens, ref := guarded(t)
			tokens.Misbehave(registry.Redirect(strings.TrimSuffix(other.URL, "/token"), 307))
			f := openParallel(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: auth})
			mustFail(t, err, errdefs.IsPermissionDenied, ref, "redirects credentials")
			if n := len(other.Requests()); n != 0 {
				t.Errorf("the other server was asked %d times", n)
			}
		})
	}
	t.Run("nobody's", func(t *testing.T) { // an anonymous request may go anywhere
		r, tokens, ref := guarded(t)
		r.Guard(func(req *http.Request) (bool, []string) { return other.Good(req), []string{tokens.Challenge()} })
		tokens.Misbehave(registry.Redirect(strings.TrimSuffix(other.URL, "/token"), 307))
		openParallel(t).pull(ref)
	})
}

// A registry that is asked over TLS and names a token server without it gets no credentials there; nobody may ask there.
func TestTokenServerWithoutTLS(t *testing.T) {
	ca := registry.NewCA(t)
	r := registry.NewTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, "127.0.0.1")}})
	r.Push("a/two", "v1", build(t, two("", "x")))
	r.Guard(func(*http.Request) (bool, []string) {
		return false, []string{`Bearer realm="http://tokens.example/token"`}
	})
	f := open(t)
	f.file("registry.example", "ca.pem", ca.PEM)
	f.hosts("registry.example", fmt.Sprintf("server = \"https://%s\"\nca = \"ca.pem\"\n", r.Addr))
	for _, auth := range []*registryclient.Auth{{Username: "u", Password: "p", ServerAddress: r.Addr}, {IdentityToken: "idt", ServerAddress: r.Addr}} {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "registry.example/a/two:v1", Auth: auth})
		mustFail(t, err, errdefs.IsPermissionDenied, "registry.example", "tokens.example", "without TLS")
	}
}
