package image_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	registryclient "monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/registry"
)

// dockerTypes are the media types of Docker's schema 2, by those of OCI.
var dockerTypes = strings.NewReplacer(
	ocispec.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json",
	ocispec.MediaTypeImageManifest, "application/vnd.docker.distribution.manifest.v2+json",
	ocispec.MediaTypeImageConfig, "application/vnd.docker.container.image.v1+json",
	ocispec.MediaTypeImageLayerGzip, "application/vnd.docker.image.rootfs.diff.tar.gzip")

// pushIndex pushes an index, and a manifest within it for each architecture.
func pushIndex(t *testing.T, r *registry.Registry, repository string, types *strings.Replacer, archs ...string) string {
	t.Helper()
	idx := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	idx.SchemaVersion = 2
	for _, arch := range archs {
		img := two("", arch)
		img.Architecture = arch
		b := build(t, img)
		r.Push(repository, "v0", b)
		raw := []byte(types.Replace(string(b.Blobs[b.Manifest.Digest])))
		desc := b.Manifest
		desc.Digest, desc.Size = r.SetManifest(repository, "v0", types.Replace(desc.MediaType), raw), int64(len(raw))
		idx.Manifests = append(idx.Manifests, desc)
	}
	raw, err := json.Marshal(idx)
	if err != nil {
		t.Fatal(err)
	}
	r.SetManifest(repository, "v1", types.Replace(idx.MediaType), []byte(types.Replace(string(raw))))
	return r.Addr + "/" + repository + ":v1"
}

// Manifests and indexes of both families, one for each platform.
func TestManifestFamilies(t *testing.T) {
	same := strings.NewReplacer()
	for name, types := range map[string]*strings.Replacer{"OCI": same, "Docker": dockerTypes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			f := openParallel(t)
			img := f.pull(pushIndex(t, r, "a/multi", types, "s390x", "arm64", "amd64"))
			if got := f.read(img, "etc/shared"); got != runtime.GOARCH {
				t.Errorf("pulled the variant for %s", got)
			}
			if n := len(r.Requests(registry.Blobs)); n != 3 {
				t.Errorf("%d blobs of other platforms too", n)
			}
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: pushIndex(t, r, "a/other", types, "s390x", "ppc64le")})
			mustFail(t, err, errdefs.IsNotFound, "no variant for this machine", "linux/s390x")
			b := build(t, two("", "single"))
			r.Push("a/single", "v1", b)
			r.SetManifest("a/single", "v1", types.Replace(b.Manifest.MediaType), []byte(types.Replace(string(b.Blobs[b.Manifest.Digest]))))
			if got := f.read(f.pull(r.Addr+"/a/single:v1"), "etc/shared"); got != "single" {
				t.Errorf("it has %q", got)
			}
		})
	}
}

// What registries say, or do not say, of a manifest: as long as its bytes are right, it is pulled.
func TestAnswersForManifests(t *testing.T) {
	b := build(t, two("", "x"))
	manifest := b.Blobs[b.Manifest.Digest]
	nameless := bytes.Replace(manifest, []byte(`"mediaType":"`+ocispec.MediaTypeImageManifest+`",`), nil, 1)
	if bytes.Equal(manifest, nameless) {
		t.Fatalf("the manifest has no media type: %s", manifest)
	}
	of := func(method string, f registry.Fault) []registry.Rule {
		return []registry.Rule{{Of: registry.Manifests, Method: method, Fault: f}}
	}
	head, get := http.MethodHead, http.MethodGet
	big := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		raw   []byte // of the manifest; nil is the right one
		rules []registry.Rule
		class func(error) bool // nil: it is pulled
		says  string
		most  int // requests for manifests, when it fails
	}{
		"no Content-Type":                  {nil, of("", registry.Header("Content-Type", "")), nil, "", 0},
		"no Content-Type and no mediaType": {nameless, of("", registry.Header("Content-Type", "")), nil, "", 0},
		"application/octet-stream":         {nil, of("", registry.Header("Content-Type", "application/octet-stream")), nil, "", 0},
		"text/plain":                       {nil, of("", registry.Header("Content-Type", "text/plain; charset=utf-8")), nil, "", 0},
		"application/json":                 {nil, of("", registry.Header("Content-Type", "application/json")), nil, "", 0},
		"a charset":                        {nil, of("", registry.Header("Content-Type", ocispec.MediaTypeImageManifest+"; charset=utf-8")), nil, "", 0},
		"another media type":               {nil, of("", registry.Header("Content-Type", "application/zip")), errdefs.IsInvalidArgument, `media type "application/zip"`, 1},
		"a web page":                       {nil, of("", registry.Answer(200, "text/html", "<html>log in</html>")), errdefs.IsUnavailable, "a web page", 1},
		"a web page of no type":            {nil, of("", registry.Answer(200, "", "<html>log in</html>")), errdefs.IsInvalidArgument, "no manifest", 3},
		"an error as a web page":           {nil, of("", registry.Answer(502, "text/html", "<html>bad gateway</html>")), errdefs.IsUnavailable, "502", 7},
		"schema 1":                         {[]byte(`{"schemaVersion":1,"fsLayers":[{"blobSum":"x"}]}`), of("", registry.Header("Content-Type", "")), errdefs.IsInvalidArgument, "schema 1", 3},
		"an artifact":                      {[]byte(`{"schemaVersion":2,"mediaType":"application/vnd.example"}`), of("", registry.Header("Content-Type", "")), errdefs.IsInvalidArgument, "application/vnd.example", 3},
		"no Docker-Content-Digest":         {nil, of("", registry.Header("Docker-Content-Digest", "")), nil, "", 0},
		"another digest":                   {nil, of("", registry.Header("Docker-Content-Digest", digest.FromString("x").String())), errdefs.IsNotFound, "not found", 3},
		"a digest that is none":            {nil, of("", registry.Header("Docker-Content-Digest", "sha256:12")), errdefs.IsFailedPrecondition, "not a valid digest", 1},
		"HEAD is not allowed":              {nil, of(head, registry.Status(405)), nil, "", 0},
		"HEAD does not say how long":       {nil, of(head, registry.Chunked()), nil, "", 0},
		"neither says how long":            {nil, of("", registry.Chunked()), nil, "", 0},
		"HEAD says another length":         {nil, of(head, registry.Header("Content-Length", "17")), errdefs.IsFailedPrecondition, "more than the 17 bytes", 2},
		"GET sends less":                   {nil, of(get, registry.Change(func(b []byte) []byte { return b[:len(b)-1] })), errdefs.IsFailedPrecondition, "damaged", 2},
		"GET sends more":                   {nil, of(get, registry.Change(func(b []byte) []byte { return append(bytes.Clone(b), ' ') })), errdefs.IsFailedPrecondition, "damaged", 2},
		"GET sends nothing":                {nil, of(get, registry.Answer(200, ocispec.MediaTypeImageManifest, "")), errdefs.IsFailedPrecondition, "only 0 of", 2},
		"other bytes":                      {nil, of(get, registry.Corrupt(30)), errdefs.IsFailedPrecondition, "damaged", 2},
		"an empty body":                    {nil, of("", registry.Answer(200, ocispec.MediaTypeImageManifest, "")), errdefs.IsInvalidArgument, "no JSON document", 3},
		"too large":                        {nil, of("", registry.Header("Content-Length", "9000000")), errdefs.IsInvalidArgument, "more than 4194304", 1},
		"endless":                          {nil, of("", registry.Endless()), errdefs.IsInvalidArgument, "longer than", 2},
		"breaks":                           {nil, []registry.Rule{{Of: registry.Manifests, Method: get, Times: 3, Fault: registry.Cut(50)}}, nil, "", 0},
		"large headers":                    {nil, of("", registry.Header("X-Large", big, "X-Larger", big)), nil, "", 0},
		"headers that are too large":       {nil, of("", registry.Header("X-1", big, "X-2", big, "X-3", big)), errdefs.IsUnavailable, "headers exceeded", 1},
		"a redirect": {nil, of("", func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
			if strings.HasPrefix(req.URL.RawQuery, "again") {
				serve(w, req)
				return
			}
			http.Redirect(w, req, req.URL.Path+"?again", http.StatusTemporaryRedirect)
		}), nil, "", 0},
		"a redirect loop": {nil, of("", func(w http.ResponseWriter, req *http.Request, _ http.HandlerFunc) {
			http.Redirect(w, req, req.URL.Path, http.StatusFound)
		}), errdefs.IsUnavailable, "redirects more than 8 times", 9},
		"hangs up for ever": {nil, of("", registry.Hangup()), errdefs.IsUnavailable, "EOF, 6 times", 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/two", "v1", b)
			if c.raw != nil {
				r.SetManifest("a/two", "v1", b.Manifest.MediaType, c.raw)
			}
			r.Misbehave(c.rules...)
			f := openParallel(t)
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			if c.class == nil {
				if err != nil || f.read(img, "etc/shared") != "x" {
					t.Errorf("%+v %v", img, err)
				}
				return
			}
			mustFail(t, err, c.class, ref, c.says)
			if n := len(r.Requests(registry.Manifests)); n > c.most {
				t.Errorf("%d requests for manifests", n)
			}
			f.mustBeEmpty()
		})
	}
}

// What registries send as a layer or a configuration: what is right in the end is pulled, all else is refused.
func TestAnswersForBlobs(t *testing.T) {
	b := build(t, large(largeSize))
	layer, config := b.Layers[0].Digest.String(), b.Config.Digest.String()
	zipped := func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		registry.Change(func(raw []byte) []byte {
			var buf bytes.Buffer
			zw := gzip.NewWriter(&buf)
			zw.Write(raw) // into memory
			zw.Close()    // as above
			return buf.Bytes()
		})(headed{w, "gzip"}, req, serve)
	}
	for name, c := range map[string]struct {
		rules []registry.Rule
		class func(error) bool // nil: it is pulled
		says  string
		most  int // requests for that blob
	}{
		"no Content-Length":             {[]registry.Rule{{Of: registry.Blobs, Fault: registry.Chunked()}}, nil, "", 1},
		"no Content-Type":               {[]registry.Rule{{Of: registry.Blobs, Fault: registry.Header("Content-Type", "")}}, nil, "", 1},
		"Content-Encoding":              {[]registry.Rule{{Of: registry.Blobs, Fault: zipped}}, nil, "", 1},
		"a slow drip":                   {[]registry.Rule{{Name: layer, Fault: registry.Slow(32<<10, 160*time.Millisecond)}}, nil, "", 1}, // for longer than the stall timeout
		"the configuration breaks":      {[]registry.Rule{{Name: config, Times: 3, Fault: registry.Cut(20)}}, nil, "", 4},
		"the configuration: 503":        {[]registry.Rule{{Name: config, Times: 3, Fault: registry.Status(503)}}, nil, "", 4},
		"the configuration is gone":     {[]registry.Rule{{Name: config, Fault: registry.Status(404)}}, errdefs.IsNotFound, "404", 1},
		"the configuration is damaged":  {[]registry.Rule{{Name: config, Fault: registry.Corrupt(10)}}, errdefs.IsFailedPrecondition, "damaged", 1},
		"the configuration is too long": {[]registry.Rule{{Name: config, Fault: registry.Change(func(b []byte) []byte { return append(bytes.Clone(b), 0) })}}, errdefs.IsFailedPrecondition, "more than", 1},
		"a web page":                    {[]registry.Rule{{Name: layer, Fault: registry.Answer(200, "text/html", "<html>log in</html>")}}, errdefs.IsFailedPrecondition, "only 19 bytes", 1},
		"an empty body":                 {[]registry.Rule{{Name: layer, Fault: registry.Answer(200, "", "")}}, errdefs.IsFailedPrecondition, "only 0 bytes", 1},
		"Content-Length is too large":   {[]registry.Rule{{Name: layer, Times: 2, Fault: registry.Cut(100)}}, nil, "", 3},
		"204":                           {[]registry.Rule{{Name: layer, Fault: registry.Status(204)}}, errdefs.IsFailedPrecondition, "only 0 bytes", 1},
		"another part than asked for": {[]registry.Rule{{Name: layer, Times: 1, Fault: registry.Cut(largeSize / 2)}, {Name: layer, Times: 1, Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
			req.Header.Set("Range", "bytes=100-")
			serve(w, req)
		}}}, nil, "", 3},
		"redirects in a circle": {[]registry.Rule{{Name: layer, Fault: func(w http.ResponseWriter, req *http.Request, _ http.HandlerFunc) {
			http.Redirect(w, req, req.URL.Path, http.StatusFound)
		}}}, errdefs.IsUnavailable, "redirects more than 8 times", 9},
		"redirects to nowhere": {[]registry.Rule{{Name: layer, Fault: registry.Redirect("ftp://registry.example", 307)}}, errdefs.IsUnavailable, "ftp", 6},
		"hangs up for ever":    {[]registry.Rule{{Name: layer, Fault: registry.Hangup()}}, errdefs.IsUnavailable, "EOF, 6 times", 7},
		"never answers":        {[]registry.Rule{{Name: layer, Fault: registry.Hang()}}, errdefs.IsUnavailable, "sent nothing for", 1},
		"endless":              {[]registry.Rule{{Name: layer, Fault: registry.Endless()}}, errdefs.IsFailedPrecondition, "more than", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/large", "v1", b)
			r.Misbehave(c.rules...)
			f := openParallel(t)
			f.close()
			f.cfg.StallTimeout = 5 * time.Second
			f.reopen()
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			if c.class == nil {
				if err != nil || len(f.read(img, "data")) != largeSize {
					t.Errorf("%v", err)
				}
			} else {
				mustFail(t, err, c.class, ref, c.says)
				if list, _ := f.List(f.ctx); len(list) != 0 {
					t.Errorf("a failed pull left %v", list)
				}
			}
			asked := map[string]int{}
			for _, q := range r.Requests(registry.Blobs) {
				asked[q.Name]++
			}
			if asked[layer] > c.most || asked[config] > c.most {
				t.Errorf("requests for blobs: %v", asked)
			}
		})
	}
}

// headed sets Content-Encoding before an answer begins.
type headed struct {
	http.ResponseWriter
	encoding string
}

func (h headed) WriteHeader(status int) {
	h.Header().Set("Content-Encoding", h.encoding)
	h.ResponseWriter.WriteHeader(status)
}

func (h headed) Flush() { h.ResponseWriter.(http.Flusher).Flush() }

// A registry that accepts connections and never answers fails the pull after the stall timeout, whatever it is asked for.
func TestRegistryThatNeverAnswers(t *testing.T) {
	for name, rule := range map[string]registry.Rule{
		"at all": {}, "the configuration": {Of: registry.Blobs, Times: 1}, "the manifest": {Of: registry.Manifests, Method: http.MethodGet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/two", "v1", build(t, two("", "x")))
			rule.Fault = registry.Hang()
			r.Misbehave(rule)
			f := openParallel(t)
			f.close()
			f.cfg.StallTimeout = 200 * time.Millisecond
			f.reopen()
			_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			mustFail(t, err, errdefs.IsUnavailable, ref, "sent nothing for 200ms")
			r.Misbehave()
			f.close()
			f.cfg.StallTimeout = 0
			f.reopen()
			f.pull(ref)
		})
	}
}

// A tag that is pushed anew while it is pulled: the image is the one or the other, never a mixture.
func TestTagMovesWithinAPull(t *testing.T) {
	old, now := build(t, two("", "old")), build(t, two("", "new"))
	for name, c := range map[string]struct {
		forget bool // the registry keeps no manifest without a tag
		want   string
	}{"the old one is kept": {false, "old"}, "the old one is gone": {true, "new"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New(t)
			ref := r.Push("a/two", "v1", old)
			moved := false
			rules := []registry.Rule{{Of: registry.Manifests, Method: http.MethodGet, Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
				if !moved {
					moved = true
					r.Push("a/two", "v1", now)
				}
				if c.forget && strings.HasSuffix(req.URL.Path, old.Manifest.Digest.String()) {
					registry.Refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")(w, req, serve)
					return
				}
				serve(w, req)
			}}}
			r.Misbehave(rules...)
			f := openParallel(t)
			img := f.pull(ref)
			if got := f.read(img, "etc/shared"); got != c.want {
				t.Errorf("it has %q", got)
			}
			want := map[string]*ociarchive.Built{"old": old, "new": now}[c.want]
			if img.ID != ids.ImageID(want.Config.Digest) || len(img.RepoDigests) != 1 || !strings.HasSuffix(img.RepoDigests[0], want.Manifest.Digest.String()) {
				t.Errorf("%+v", img)
			}
		})
	}
	t.Run("without a digest", func(t *testing.T) { // HEAD tells none, so that the bytes of a GET count
		t.Parallel()
		r := registry.New(t)
		ref := r.Push("a/two", "v1", old)
		r.Misbehave(registry.Rule{Of: registry.Manifests, Name: "v1", Method: http.MethodHead, Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
			registry.Header("Docker-Content-Digest", "")(w, req, serve)
			r.Push("a/two", "v1", now)
		}}, registry.Rule{Of: registry.Manifests, Name: "v1", Fault: registry.Header("Docker-Content-Digest", "")})
		f := openParallel(t)
		if got := f.read(f.pull(ref), "etc/shared"); got != "new" {
			t.Errorf("it has %q", got)
		}
	})
}

// Until a pull has ended nobody sees anything of the image, at no request that it makes and after no failure.
func TestNothingPartlyPulledIsVisible(t *testing.T) {
	r := registry.New(t)
	b := build(t, two("", "x"))
	ref := r.Push("a/two", "v1", b)
	f := open(t)
	looks := 0
	unseen := func() {
		looks++
		if list, err := f.List(f.ctx); err != nil || len(list) != 0 {
			t.Errorf("a part of an image is listed: %v %v", list, err)
		}
		for _, name := range []string{ref, b.Config.Digest.String(), r.Addr + "/a/two@" + b.Manifest.Digest.String()} {
			if _, err := f.Get(f.ctx, name); !errdefs.IsNotFound(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for n := range 5 { // the manifest (HEAD, GET), the configuration, the layers: each request is looked at, and one fails
		count := 0
		r.Misbehave(registry.Rule{Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
			unseen()
			if count++; count > n {
				registry.Status(404)(w, req, serve)
				return
			}
			serve(w, req)
		}})
		if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref}); !errdefs.IsNotFound(err) {
			t.Errorf("after %d answers: %v", n, err)
		}
		unseen()
		f.mustBeEmpty()
	}
	r.Misbehave(registry.Rule{Fault: registry.Do(func(*http.Request) { unseen() })})
	f.pull(ref)
	if list, err := f.List(f.ctx); err != nil || len(list) != 1 || looks < 15 {
		t.Errorf("%v %v after %d looks", list, err, looks)
	}
}

// Pulls of one image at the same time make the requests of one, even with different credentials and by different names.
func TestConcurrentPullsAskOnce(t *testing.T) {
	r := registry.New(t)
	b := build(t, two("", "x"))
	r.Push("a/two", "v1", b)
	r.Push("a/two", "v2", b)
	r.Misbehave(registry.Rule{Of: registry.Blobs, Fault: registry.Slow(64, time.Millisecond)})
	f := open(t)
	ended := make(chan error)
	const pulls = 12
	for i := range pulls {
		req := image.PullRequest{Ref: fmt.Sprintf("%s/a/two:v%d", r.Addr, 1+i%2)}
		if i%3 == 0 {
			req.Auth = &registryclient.Auth{Username: "u", Password: "p"}
		}
		go func() {
			_, err := f.Pull(f.ctx, req)
			ended <- err
		}()
	}
	for range pulls {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	got := map[string]int{}
	for _, q := range r.Requests(registry.Any) {
		if q.Method == http.MethodGet {
			got[q.Name]++
		}
	}
	if len(got) != 4 {
		t.Errorf("requests for %v", got)
	}
	for name, n := range got {
		if n != 1 {
			t.Errorf("%s was fetched %d times", name, n)
		}
	}
}
