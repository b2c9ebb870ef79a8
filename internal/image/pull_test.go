package image_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/images"
)

// front is a server before a registry, that can misbehave.
type front struct {
	addr string
	// serve, when it is set, answers instead of the registry when it returns true.
	serve atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler) bool]
	blobs atomic.Int32 // how many blobs were asked for
}

func newFront(t *testing.T, r *images.Registry) *front {
	t.Helper()
	next := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.Addr})
	next.FlushInterval = -1
	f := &front{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/blobs/") {
			f.blobs.Add(1)
		}
		if serve := f.serve.Load(); serve != nil && (*serve)(w, req, next) {
			return
		}
		next.ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	f.addr = srv.Listener.Addr().String()
	return f
}

func (f *front) set(serve func(w http.ResponseWriter, r *http.Request, next http.Handler) bool) {
	f.serve.Store(&serve)
}

// isLayer says whether a request is for a blob that is larger than a configuration.
func isLayer(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
}

// large is an image of one layer that cannot be compressed, of the size in bytes.
func large(size int) ociarchive.Image {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(data) // it never fails
	return ociarchive.Image{Layers: []ociarchive.Layer{{{Path: "etc/shared", Data: []byte("large")}, {Path: "data", Data: data}}}}
}

func TestPullWithCredentials(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{Username: "user", Password: "secret"})
	push(t, r, two("", "x"), "a/two", "v1")
	f := open(t)
	ref := r.Addr + "/a/two:v1"
	plain := base64.StdEncoding.EncodeToString([]byte("user:secret"))

	for name, auth := range map[string]*registry.Auth{
		"none":           nil,
		"empty":          {},
		"wrong":          {Username: "user", Password: "wrong"},
		"another server": {Username: "user", Password: "secret", ServerAddress: "https://registry.example"},
		"a token":        {RegistryToken: "x"},
	} {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: auth})
		if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), ref) || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
	for _, auth := range []*registry.Auth{{Auth: "***"}, {Auth: base64.StdEncoding.EncodeToString([]byte("no colon"))}} {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: auth})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", auth, err)
		}
	}
	for name, auth := range map[string]*registry.Auth{
		"user and password": {Username: "user", Password: "secret"},
		"base64":            {Auth: plain},
		"with the server":   {Username: "user", Password: "secret", ServerAddress: r.Addr},
		"with its URL":      {Username: "user", Password: "secret", ServerAddress: "http://" + r.Addr + "/v2/"},
	} {
		if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref, Auth: auth}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Contains(f.logs.String(), "secret") {
		t.Error("the log tells the password")
	}
}

// A token is sent to the registry as it is.
func TestRegistryToken(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "x"), "a/two", "v1")
	front := newFront(t, r)
	front.set(func(w http.ResponseWriter, req *http.Request, _ http.Handler) bool {
		if req.Header.Get("Authorization") == "Bearer good" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	f := open(t)
	if _, err := f.Pull(f.ctx, image.PullRequest{Ref: front.addr + "/a/two:v1", Auth: &registry.Auth{RegistryToken: "good"}}); err != nil {
		t.Error(err)
	}
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: front.addr + "/a/two:v1", Auth: &registry.Auth{RegistryToken: "bad"}})
	mustFail(t, err, errdefs.IsPermissionDenied, front.addr, "401")
}

func TestMirrors(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "mirrored"), "a/two", "v1")
	f := open(t)
	dead := deadAddr(t)
	front := newFront(t, r)
	var leaked atomic.Bool
	front.set(func(_ http.ResponseWriter, req *http.Request, _ http.Handler) bool {
		if req.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		return false
	})
	hosts := func(host, conf string) {
		t.Helper()
		dir := filepath.Join(f.cfg.RegistryConfigDir, host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(conf), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The first mirror is down, the second one serves; the server itself is never asked.
	hosts("registry.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", dead, dead, front.addr))
	img, err := f.Pull(f.ctx, image.PullRequest{Ref: "registry.example/a/two:v1", Auth: &registry.Auth{Username: "u", Password: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	if f.read(img, "etc/shared") != "mirrored" || img.RepoTags[0] != "registry.example/a/two:v1" {
		t.Errorf("%+v", img)
	}
	if leaked.Load() {
		t.Error("the registry's password was sent to a mirror")
	}

	// All hosts fail: the error names each of them, with what it said.
	hosts("down.example", fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", r.Addr, dead))
	_, err = f.Pull(f.ctx, image.PullRequest{Ref: "down.example/a/none:v1"})
	mustFail(t, err, errdefs.IsNotFound, "down.example/a/none:v1", "http://"+dead+" (", "connection refused", "http://"+r.Addr+" (404 Not Found)")
	hosts("dead.example", fmt.Sprintf("server = \"http://%s\"\n", dead))
	_, err = f.Pull(f.ctx, image.PullRequest{Ref: "dead.example/a/none:v1"})
	mustFail(t, err, errdefs.IsUnavailable, "dead.example/a/none:v1", dead, "connection refused")

	for conf, says := range map[string]string{
		"server = ":                                 "hosts.toml",
		"capabilities = [\"pul\"]":                  `unknown capability "pul"`,
		"server = \"http://\"":                      "has no host",
		"[host.\"http://a\"]\ndial_timeout = \"3\"": "dial_timeout",
	} {
		hosts("broken.example", conf)
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: "broken.example/x:v1"})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "broken.example") {
			t.Errorf("%q: %v", conf, err)
		}
	}
}

func TestBadReferences(t *testing.T) {
	f := open(t)
	for _, ref := range []string{"", "UPPER", "a b", "a@sha256:1234", ":tag", "http://host/x", strings.Repeat("a", 300)} {
		if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Pull(%q): %v", ref, err)
		}
		if _, err := f.Get(f.ctx, ref); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Get(%q): %v", ref, err)
		}
	}
	if _, err := f.Get(f.ctx, "none"); !errdefs.IsNotFound(err) {
		t.Errorf("Get of an unknown image: %v", err)
	}
	if err := f.Remove(f.ctx, "none"); err != nil {
		t.Errorf("Remove of an unknown image: %v", err)
	}
	for _, id := range []ids.ImageID{"", "busybox", "sha256:12"} {
		if _, err := f.Layers(f.ctx, id); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Layers(%q): %v", id, err)
		}
	}
	if _, err := f.Layers(f.ctx, ids.ImageID("sha256:"+strings.Repeat("0", 64))); !errdefs.IsNotFound(err) {
		t.Errorf("Layers of an unknown image: %v", err)
	}
}

// A download that breaks fails the pull and leaves no image; the next pull goes on where it broke.
func TestBrokenDownloadIsResumed(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	const size = 4 << 20
	push(t, r, large(size), "a/large", "v1")
	front := newFront(t, r)
	f := open(t)
	ref := front.addr + "/a/large:v1"
	left := int64(size / 2) // of all answers together, because the client tries again by itself
	front.set(func(w http.ResponseWriter, req *http.Request, next http.Handler) bool {
		if !isLayer(req) {
			return false
		}
		next.ServeHTTP(&cut{ResponseWriter: w, left: &left}, req)
		return true
	})
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
	if err == nil {
		t.Fatal("half an image was pulled")
	}
	t.Log(err)
	if !errdefs.IsUnavailable(err) {
		t.Errorf("the error has another class: %v", err)
	}
	if list, _ := f.List(f.ctx); len(list) != 0 {
		t.Errorf("a failed pull left %v", list)
	}
	f.close()
	f.reopen()
	var ranged atomic.Bool
	front.set(func(_ http.ResponseWriter, req *http.Request, _ http.Handler) bool {
		if isLayer(req) && req.Header.Get("Range") != "" && !strings.HasPrefix(req.Header.Get("Range"), "bytes=0-") {
			ranged.Store(true)
		}
		return false
	})
	img := f.pull(ref)
	if f.read(img, "etc/shared") != "large" || len(f.read(img, "data")) != size {
		t.Error("the image is damaged")
	}
	if !ranged.Load() {
		t.Error("the download started anew")
	}
}

// cut ends an answer in the middle.
type cut struct {
	http.ResponseWriter
	left *int64
}

func (c *cut) Write(p []byte) (int, error) {
	if left := atomic.AddInt64(c.left, -int64(len(p))); left < 0 {
		c.ResponseWriter.Write(p[:max(0, left+int64(len(p)))])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

func TestStalledDownloadEnds(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, large(1<<20), "a/large", "v1")
	front := newFront(t, r)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	front.set(func(w http.ResponseWriter, req *http.Request, next http.Handler) bool {
		if !isLayer(req) {
			return false
		}
		w.Header().Set("Content-Length", "1048576")
		w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-req.Context().Done():
		}
		return true
	})
	f := open(t)
	f.close()
	f.cfg.StallTimeout = 200 * time.Millisecond
	f.reopen()
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: front.addr + "/a/large:v1"})
	mustFail(t, err, errdefs.IsUnavailable, front.addr+"/a/large:v1", "sent nothing for 200ms")
}

// The caller's context ends its wait; when nobody waits any more, the pull ends.
func TestCancelledPull(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, large(1<<20), "a/large", "v1")
	front := newFront(t, r)
	asked := make(chan struct{}, 16)
	gone := make(chan struct{}, 16)
	front.set(func(w http.ResponseWriter, req *http.Request, next http.Handler) bool {
		if !isLayer(req) {
			return false
		}
		asked <- struct{}{}
		<-req.Context().Done()
		gone <- struct{}{}
		return true
	})
	f := open(t)
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := f.Pull(ctx, image.PullRequest{Ref: front.addr + "/a/large:v1"})
		ended <- err
	}()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled pull: %v", err)
	}
	<-gone
	front.set(func(http.ResponseWriter, *http.Request, http.Handler) bool { return false })
	f.pull(front.addr + "/a/large:v1")
}

// A layer that another image has brought is not fetched again.
func TestSharedLayersAreFetchedOnce(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "one"), "a/one", "v1")
	push(t, r, two("", "two"), "a/two", "v1")
	front := newFront(t, r)
	f := open(t)
	f.pull(front.addr + "/a/one:v1")
	before := front.blobs.Load()
	f.pull(front.addr + "/a/two:v1")
	if n := front.blobs.Load() - before; n != 2 {
		t.Errorf("%d blobs were fetched, not the configuration and one layer", n)
	}
}

// A blob that is not what its digest says never becomes an image.
func TestDamagedBlobIsRefused(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, large(100_000), "a/large", "v1")
	front := newFront(t, r)
	front.set(func(w http.ResponseWriter, req *http.Request, next http.Handler) bool {
		if !isLayer(req) {
			return false
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, req)
		body := rec.Body.Bytes()
		body[len(body)/2] ^= 1
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		io.Copy(w, bytes.NewReader(body))
		return true
	})
	f := open(t)
	if _, err := f.Pull(f.ctx, image.PullRequest{Ref: front.addr + "/a/large:v1"}); err == nil {
		t.Error("a damaged image was pulled")
	} else {
		t.Log(err)
	}
	front.set(func(http.ResponseWriter, *http.Request, http.Handler) bool { return false })
	f.pull(front.addr + "/a/large:v1")
}

func TestFileSystemThatCannotHoldLayers(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(dir, "merged")
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", merged, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(merged, 0)
	_, err := image.Open(t.Context(), image.Config{Root: filepath.Join(merged, "images")})
	mustFail(t, err, errdefs.IsFailedPrecondition, merged, "ext4")
}

// deadAddr is an address of loopback where nobody listens.
func deadAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
