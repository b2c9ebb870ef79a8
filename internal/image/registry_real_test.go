package image_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image"
	registryclient "monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/registry"
)

// Docker's registry over TLS: with its own authority, with client certificates, and with a password.
func TestRealRegistryOverTLS(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := registry.NewCA(t)
	cert, key := ca.Issue(t, "127.0.0.1")
	clientCert, clientKey := ca.Issue(t, "client")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Pair(t, "client")}}}}
	t.Cleanup(client.CloseIdleConnections)
	caFile := write("ca.pem", ca.PEM)
	base := images.RegistryConfig{CertFile: write("cert.pem", cert), KeyFile: write("key.pem", key), Client: client}
	mutual, locked := base, base
	mutual.ClientCAFile = caFile
	locked.Username, locked.Password = "user", "secret"
	pair := fmt.Sprintf("client = [[%q, %q]]\n", write("client.pem", clientCert), write("client-key.pem", clientKey))
	for name, c := range map[string]struct {
		cfg  images.RegistryConfig
		conf string
		auth *registryclient.Auth
		says string // of the error, when it may not be pulled
	}{
		"ca":               {base, fmt.Sprintf("ca = %q\n", caFile), nil, ""},
		"unknown":          {base, "", nil, "unknown authority"},
		"client":           {mutual, fmt.Sprintf("ca = %q\n%s", caFile, pair), nil, ""},
		"no client":        {mutual, fmt.Sprintf("ca = %q\n", caFile), nil, "tls"},
		"password":         {locked, fmt.Sprintf("ca = %q\n", caFile), &registryclient.Auth{Username: "user", Password: "secret"}, ""},
		"no password":      {locked, fmt.Sprintf("ca = %q\n", caFile), nil, "401"},
		"another password": {locked, fmt.Sprintf("ca = %q\n", caFile), &registryclient.Auth{Username: "user", Password: "no"}, "refuses the credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			r := images.NewRegistry(t, c.cfg)
			push(t, r, two("", "over TLS"), "a/two", "v1")
			f := open(t)
			f.hosts(strings.ReplaceAll(r.Addr, ":", "_")+"_", fmt.Sprintf("server = \"https://%s\"\n%s", r.Addr, c.conf))
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: r.Addr + "/a/two:v1", Auth: c.auth})
			if c.says != "" {
				mustFail(t, err, func(err error) bool { return errdefs.IsUnavailable(err) || errdefs.IsPermissionDenied(err) }, r.Addr, c.says)
				return
			}
			if err != nil || f.read(img, "etc/shared") != "over TLS" {
				t.Errorf("%+v %v", img, err)
			}
		})
	}
}

// Docker's registry with a token server: it checks the signature, the audience and the scope of each token.
func TestRealRegistryWithTokens(t *testing.T) {
	tokens := registry.NewTokens(t)
	cert := filepath.Join(t.TempDir(), "tokens.pem")
	if err := os.WriteFile(cert, tokens.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	pusher := &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
		token, err := tokens.Issue("pusher", "repository:a/two:pull,push")
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return http.DefaultTransport.RoundTrip(req)
	})}
	r := images.NewRegistry(t, images.RegistryConfig{TokenRealm: tokens.URL, TokenService: tokens.Service, TokenIssuer: tokens.Issuer, TokenCertFile: cert, Client: pusher})
	push(t, r, two("", "x"), "a/two", "v1")
	ref := r.Addr + "/a/two:v1"
	token, err := tokens.Issue("u", "repository:a/two:pull")
	if err != nil {
		t.Fatal(err)
	}
	other, err := tokens.Issue("u", "repository:a/other:pull")
	if err != nil {
		t.Fatal(err)
	}
	tokens.Users, tokens.Refresh = map[string]string{"u": "p"}, []string{"idt"}
	for name, c := range map[string]struct {
		auth *registryclient.Auth
		says string
	}{
		"password":               {&registryclient.Auth{Username: "u", Password: "p"}, ""},
		"identity token":         {&registryclient.Auth{IdentityToken: "idt"}, ""},
		"registry token":         {&registryclient.Auth{RegistryToken: token}, ""},
		"of another repository":  {&registryclient.Auth{RegistryToken: other}, "401"},
		"another password":       {&registryclient.Auth{Username: "u", Password: "no"}, "incorrect username or password"},
		"another identity token": {&registryclient.Auth{IdentityToken: "no"}, "incorrect username or password"},
		"nobody":                 {nil, "incorrect username or password"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: c.auth})
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustFail(t, err, errdefs.IsPermissionDenied, ref, c.says)
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// By tag, by digest and by both: the digest decides; and what a registry does not have is told in its words.
func TestRealRegistryReferences(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	first, second := push(t, r, two("", "one"), "a/two", "v1"), push(t, r, two("", "two"), "a/two", "v2")
	f := open(t)
	name := r.Addr + "/a/two"
	byDigest := f.pull(name + "@" + first.String())
	if f.read(byDigest, "etc/shared") != "one" || len(byDigest.RepoTags) != 0 || !slices.Equal(byDigest.RepoDigests, []string{name + "@" + first.String()}) {
		t.Errorf("by digest: %+v", byDigest)
	}
	both := f.pull(name + ":v1@" + second.String()) // the tag means something else: it is left out
	if f.read(both, "etc/shared") != "two" || len(both.RepoTags) != 0 || !slices.Equal(both.RepoDigests, []string{name + "@" + second.String()}) {
		t.Errorf("by tag and digest: %+v", both)
	}
	byTag := f.pull(name + ":v1")
	if byTag.ID != byDigest.ID || !slices.Equal(byTag.RepoTags, []string{name + ":v1"}) {
		t.Errorf("by tag: %+v", byTag)
	}
	for ref, says := range map[string]string{name + ":none": "404", r.Addr + "/a/none:v1": "404", name + "@sha256:" + strings.Repeat("0", 64): "404"} {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		mustFail(t, err, errdefs.IsNotFound, ref, says)
	}
}
