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
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/test/registry"
)

// file writes a file beside a registry's hosts.toml.
func (f *fixture) file(registry, name string, data []byte) {
	f.t.Helper()
	dir := filepath.Join(f.cfg.RegistryConfigDir, registry)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// Over TLS a registry is believed only by the authorities that hosts.toml or the folder names, and gets the client's
// certificate.
func TestTLS(t *testing.T) {
	ca, other := registry.NewCA(t), registry.NewCA(t)
	b := build(t, two("", "over TLS"))
	server := func(cfg *tls.Config) *registry.Registry {
		cfg.Certificates = []tls.Certificate{ca.Pair(t, "127.0.0.1")}
		r := registry.NewTLS(t, cfg)
		r.Push("a/two", "v1", b)
		return r
	}
	plain := server(&tls.Config{})
	mutual := server(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	cert, key := ca.Issue(t, "client")
	const folderOnly = "no hosts.toml" // files by docker's names
	for name, c := range map[string]struct {
		r     *registry.Registry
		conf  string
		files map[string][]byte
		says  string // of the error; "": it is pulled
	}{
		"ca":                   {plain, `ca = "ca.pem"`, map[string][]byte{"ca.pem": ca.PEM}, ""},
		"several authorities":  {plain, `ca = ["other.pem", "ca.pem"]`, map[string][]byte{"ca.pem": ca.PEM, "other.pem": other.PEM}, ""},
		"skip_verify":          {plain, `skip_verify = true`, nil, ""},
		"another authority":    {plain, `ca = "ca.pem"`, map[string][]byte{"ca.pem": other.PEM}, "certificate signed by unknown authority"},
		"the system's":         {plain, "", nil, "certificate signed by unknown authority"},
		"no file":              {plain, `ca = "ca.pem"`, nil, "ca.pem"},
		"no certificate in it": {plain, `ca = "ca.pem"`, map[string][]byte{"ca.pem": []byte("x")}, "ca.pem"},
		"client":               {mutual, "ca = \"ca.pem\"\nclient = [[\"c.pem\", \"k.pem\"]]", map[string][]byte{"ca.pem": ca.PEM, "c.pem": cert, "k.pem": key}, ""},
		"client in one file":   {mutual, "ca = \"ca.pem\"\nclient = \"both.pem\"", map[string][]byte{"ca.pem": ca.PEM, "both.pem": slices.Concat(cert, key)}, ""},
		"client of the folder": {mutual, folderOnly, map[string][]byte{"ca.crt": ca.PEM, "c.cert": cert, "c.key": key}, ""},
		"no client":            {mutual, `ca = "ca.pem"`, map[string][]byte{"ca.pem": ca.PEM}, "tls"},
		"no key":               {mutual, "ca = \"ca.pem\"\nclient = \"c.pem\"", map[string][]byte{"ca.pem": ca.PEM, "c.pem": cert}, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openParallel(t)
			host := c.r.Addr
			dir := strings.ReplaceAll(host, ":", "_") + "_" // how a folder is named without a colon
			for file, data := range c.files {
				f.file(dir, file, data)
			}
			if c.conf != folderOnly {
				f.hosts(dir, fmt.Sprintf("server = \"https://%s\"\n%s\n", host, c.conf))
			}
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: host + "/a/two:v1"})
			if c.says != "" {
				mustFail(t, err, func(err error) bool { return errdefs.IsUnavailable(err) || errdefs.IsInvalidArgument(err) }, host, c.says)
				return
			}
			if err != nil || f.read(img, "etc/shared") != "over TLS" {
				t.Errorf("%+v %v", img, err)
			}
		})
	}
}

// A registry on loopback needs no configuration: TLS is tried, with any certificate, and then plain HTTP. Any other is asked
// over TLS only.
func TestLoopbackRegistries(t *testing.T) {
	ca := registry.NewCA(t)
	b := build(t, two("", "x"))
	secure := registry.NewTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, "elsewhere.example")}})
	plain := registry.New(t)
	f := open(t)
	f.pull(secure.Push("a/two", "v1", b))
	f.pull(plain.Push("a/two", "v1", b))
	f.hosts("registry.example", fmt.Sprintf("[host.%q]\n", plain.Addr)) // a host without a scheme
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: "registry.example/a/two:v1"})
	mustFail(t, err, errdefs.IsUnavailable, "https://"+plain.Addr, "HTTP response to HTTPS client")
}

// A registry that can speak HTTP/2 is asked by HTTP/1.1: a connection for each layer brings more than one for all.
func TestHTTP2(t *testing.T) {
	r := registry.NewTLS(t, &tls.Config{Certificates: []tls.Certificate{registry.NewCA(t).Pair(t, "127.0.0.1")}})
	f := open(t)
	f.pull(r.Push("a/two", "v1", build(t, two("", "x"))))
	for _, q := range r.Requests(registry.Any) {
		if q.Proto != "HTTP/1.1" {
			t.Errorf("%s %s by %s", q.Method, q.Path, q.Proto)
		}
	}
}

// What hosts.toml can say beside TLS.
func TestHostsToml(t *testing.T) {
	b := build(t, two("", "x"))
	f := open(t)
	t.Run("override_path", func(t *testing.T) {
		r := registry.New(t)
		r.Push("a/two", "v1", b)
		f.hosts("path.example", fmt.Sprintf("[host.\"http://%s/api/docker/v2\"]\n  override_path = true\n[host.\"http://%s/api\"]\n", r.Addr, r.Addr))
		f.pull("path.example/a/two:v1")
		for _, q := range r.Requests(registry.Any) {
			if !strings.HasPrefix(q.Path, "/api/docker/v2/a/two/") || q.Query != "ns=path.example" {
				t.Errorf("%s?%s", q.Path, q.Query)
			}
		}
	})
	t.Run("a path", func(t *testing.T) {
		r := registry.New(t)
		r.Push("a/two", "v1", b)
		f.hosts("prefix.example", fmt.Sprintf("[host.\"http://%s/proxy\"]\n", r.Addr))
		f.pull("prefix.example/a/two:v1")
		for _, q := range r.Requests(registry.Any) {
			if !strings.HasPrefix(q.Path, "/proxy/v2/a/two/") {
				t.Errorf("%s", q.Path)
			}
		}
	})
	t.Run("headers", func(t *testing.T) {
		r := registry.New(t)
		r.Push("a/two", "v1", b)
		r.Misbehave(registry.Rule{Of: registry.Manifests, Fault: registry.Status(503)})
		f.hosts("header.example", fmt.Sprintf("server = \"http://%s\"\n[header]\n  x-one = \"1\"\n  x-two = [\"a\", \"b\"]\n", r.Addr))
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "header.example/a/two:v1"})
		mustFail(t, err, errdefs.IsUnavailable, "503")
		if n := len(r.Requests(registry.Any)); n != 7 { // six attempts, and one GET for the registry's words
			t.Errorf("%d requests", n)
		}
		r.Misbehave()
		f.pull("header.example/a/two:v1")
		for _, q := range r.Requests(registry.Any) {
			if q.Header.Get("X-One") != "1" || !slices.Equal(q.Header.Values("X-Two"), []string{"a", "b"}) {
				t.Errorf("%v", q.Header)
			}
		}
	})
	t.Run("capabilities", func(t *testing.T) {
		// One that may not resolve is not asked what a tag means, but for what digests say; one without pull is never asked.
		server, mirror, pusher := registry.New(t), registry.New(t), registry.New(t)
		server.Push("a/caps", "v1", b)
		mirror.Push("a/caps", "v1", b)
		f.hosts("caps.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n  capabilities = [\"push\"]\n[host.\"http://%s\"]\n  capabilities = [\"pull\"]\n", server.Addr, pusher.Addr, mirror.Addr))
		other := open(t)
		other.cfg.RegistryConfigDir = f.cfg.RegistryConfigDir
		other.close()
		other.reopen()
		other.pull("caps.example/a/caps:v1")
		if got := server.Requests(registry.Any); len(got) != 1 || got[0].Method != http.MethodHead || got[0].Name != "v1" {
			t.Errorf("the server was asked %+v", got)
		}
		for _, q := range mirror.Requests(registry.Any) {
			if !strings.HasPrefix(q.Name, "sha256:") {
				t.Errorf("the mirror was asked for %s", q.Name)
			}
		}
		if n := len(mirror.Requests(registry.Any)); n != 4 {
			t.Errorf("the mirror was asked %d times for a manifest, a configuration and two layers", n)
		}
		if n := len(pusher.Requests(registry.Any)); n != 0 {
			t.Errorf("the host to push to was asked %d times", n)
		}
		f.hosts("push.example", fmt.Sprintf("server = \"http://%s\"\ncapabilities = [\"push\"]\n", server.Addr))
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "push.example/a/caps:v1"})
		mustFail(t, err, errdefs.IsInvalidArgument, "push.example", `capability "pull"`)
	})
	t.Run("_default", func(t *testing.T) {
		r := registry.New(t)
		r.Push("a/two", "v1", b)
		f.hosts("_default", fmt.Sprintf("[host.\"http://%s\"]\n", r.Addr))
		f.pull("anything.example/a/two:v1")
		if got := r.Requests(registry.Manifests); len(got) == 0 || got[0].Query != "ns=anything.example" {
			t.Errorf("%+v", got)
		}
		f.hosts("own.example", "server = \"http://"+deadAddr(t)+"\"\n")
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "own.example/a/two:v1"})
		mustFail(t, err, errdefs.IsUnavailable, "own.example", "connection refused")
	})
	t.Run("dial_timeout", func(t *testing.T) {
		f.hosts("slow.example", fmt.Sprintf("server = \"http://%s\"\ndial_timeout = \"1ns\"\n", deadAddr(t)))
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "slow.example/a/two:v1"})
		mustFail(t, err, errdefs.IsUnavailable, "slow.example", "i/o timeout")
	})
	for conf, says := range map[string]string{
		"skip_verfy = true":              `line 1: unknown key "skip_verfy"`,
		"[host.\"http://a\".rewrite]\n":  `unknown key "host.http://a.rewrite"`,
		"ca = 3":                         "ca: 3 is neither",
		"ca = [1]":                       "ca: [1] is neither",
		"client = [[\"a\"]]":             "client: [[a]] is neither",
		"client = [[\"a\", \"b\"], 1]":   "client: ",
		"[header]\nx = 1":                `header "x"`,
		"skip_verify = \"yes\"":          "line 1: skip_verify has a value of the wrong type",
		"server = \"http://a:b\"":        "server: ",
		"[host.\"http://%zz\"]":          "host \"http://%zz\"",
		"capabilities = \"pull\"":        "line 1: capabilities has a value of the wrong type",
		"[[host]]\nserver = \"http://\"": "hosts.toml",
	} {
		f.hosts("broken.example", conf)
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "broken.example/x:v1"})
		mustFail(t, err, errdefs.IsInvalidArgument, "broken.example", "hosts.toml", says)
	}
}

// Whatever a mirror does wrong, the next host is asked; a tag, a manifest or a layer of the wrong digest never becomes an image.
func TestMirrorsThatFail(t *testing.T) {
	b := build(t, large(largeSize))
	layer, config := b.Layers[0].Digest.String(), b.Config.Digest.String()
	for name, c := range map[string]struct {
		rule registry.Rule
		most int // requests that the mirror gets
	}{
		"401":             {registry.Rule{Fault: registry.Status(401, "WWW-Authenticate", `Basic realm="r"`)}, 4},
		"403":             {registry.Rule{Fault: registry.Status(403)}, 5},
		"404":             {registry.Rule{Fault: registry.Status(404)}, 4},
		"429 for an hour": {registry.Rule{Fault: registry.Status(429, "Retry-After", "3600")}, 8},
		"503":             {registry.Rule{Fault: registry.Status(503)}, 8},
		"hangs up":        {registry.Rule{Fault: registry.Hangup()}, 4},
		"a web page":      {registry.Rule{Fault: registry.Answer(200, "text/html", "<html>")}, 4},
		"a redirect loop": {registry.Rule{Fault: func(w http.ResponseWriter, req *http.Request, _ http.HandlerFunc) {
			w.Header().Set("Location", req.URL.Path)
			w.WriteHeader(302)
		}}, 44},
		"never answers":                 {registry.Rule{Fault: registry.Hang()}, 1},
		"never sends the layer":         {registry.Rule{Name: layer, Fault: registry.Stall(10, nil)}, 4},
		"no layer":                      {registry.Rule{Name: layer, Fault: registry.Status(404)}, 4},
		"a damaged layer":               {registry.Rule{Name: layer, Fault: registry.Corrupt(500)}, 4},
		"a layer that is too short":     {registry.Rule{Name: layer, Fault: registry.Change(func(b []byte) []byte { return b[:100] })}, 4},
		"a layer that breaks":           {registry.Rule{Name: layer, Fault: registry.Cut(10)}, 9},
		"a damaged configuration":       {registry.Rule{Name: config, Fault: registry.Corrupt(5)}, 3},
		"a configuration that is short": {registry.Rule{Name: config, Fault: registry.Change(func(b []byte) []byte { return b[1:] })}, 3},
		"a damaged manifest":            {registry.Rule{Of: registry.Manifests, Method: http.MethodGet, Fault: registry.Corrupt(5)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mirror, server := registry.New(t), registry.New(t)
			mirror.Push("a/large", "v1", b)
			server.Push("a/large", "v1", b)
			mirror.Misbehave(c.rule)
			f := openParallel(t)
			f.close()
			f.cfg.StallTimeout = 5 * time.Second // a stall of the server would fail the pull
			f.reopen()
			f.hosts("mirrored.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", server.Addr, mirror.Addr))
			img := f.pull("mirrored.example/a/large:v1")
			if len(f.read(img, "data")) != largeSize {
				t.Error("the image is damaged")
			}
			if n := len(mirror.Requests(registry.Any)); n > c.most {
				t.Errorf("the mirror was asked %d times", n)
			}
			if left := f.partials(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	for name, fault := range map[string]registry.Fault{"its token server never answers": registry.Hang(), "its token server: 503": registry.Status(503), "its token server refuses": registry.Status(403)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mirror, tokens, ref := guarded(t)
			tokens.Misbehave(fault)
			server := registry.New(t)
			server.Push("a/two", "v1", build(t, two("", "served")))
			f := openParallel(t)
			f.close()
			f.cfg.StallTimeout = 5 * time.Second
			f.reopen()
			f.hosts("mirrored.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", server.Addr, mirror.Addr))
			if got := f.read(f.pull(strings.Replace(ref, mirror.Addr, "mirrored.example", 1)), "etc/shared"); got != "served" {
				t.Errorf("it has %q", got)
			}
			if n := len(tokens.Requests()); n > 4 {
				t.Errorf("the token server was asked %d times", n)
			}
		})
	}
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		mirror, server := registry.New(t), registry.New(t)
		for _, r := range []*registry.Registry{mirror, server} {
			r.Push("a/large", "v1", b)
			r.Misbehave(registry.Rule{Name: layer, Fault: registry.Corrupt(500)})
		}
		f := openParallel(t)
		f.hosts("mirrored.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", server.Addr, mirror.Addr))
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "mirrored.example/a/large:v1"})
		mustFail(t, err, errdefs.IsFailedPrecondition, "mirrored.example/a/large:v1", "damaged layer", layer)
		f.mustBeEmpty()
	})
}
