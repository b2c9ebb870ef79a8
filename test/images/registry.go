package images

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/bcrypt"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// startPatience bounds the wait for docker-registry, also in a machine that is emulated.
const startPatience = 5 * time.Minute

// RegistryConfig says how a registry is to be.
type RegistryConfig struct {
	// Username and Password, when set, are asked for by HTTP basic authentication, for reading and writing.
	Username, Password string
	// CertFile and KeyFile, when set, make it serve TLS; with ClientCAFile it asks clients for a certificate.
	CertFile, KeyFile, ClientCAFile string
	// TokenRealm, when set, makes it take tokens of that server, which TokenCertFile signs.
	TokenRealm, TokenService, TokenIssuer, TokenCertFile string
	// Client is what Push uses; nil is http.DefaultClient.
	Client *http.Client
}

// Registry is Debian's docker-registry, run on a free port of loopback over plain HTTP, with its storage in a temporary
// directory.
type Registry struct {
	// Addr is host:port, the first part of the references of its images.
	Addr string

	cfg RegistryConfig
	dir string
	cmd *exec.Cmd
	log bytes.Buffer
	// logDone is closed when the process has closed its standard error.
	logDone chan struct{}
}

// NewRegistry starts a registry that lives as long as the test.
func NewRegistry(tb testing.TB, cfg RegistryConfig) *Registry {
	tb.Helper()
	r, err := StartRegistry(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// StartRegistry starts a registry and returns when it listens. The caller stops it.
func StartRegistry(cfg RegistryConfig) (*Registry, error) {
	binary, err := exec.LookPath("docker-registry")
	if err != nil {
		return nil, errors.New("test registry: docker-registry is missing; apt-get install docker-registry")
	}
	dir, err := os.MkdirTemp("", "mp-registry-")
	if err != nil {
		return nil, err
	}
	r := &Registry{cfg: cfg, dir: dir, logDone: make(chan struct{})}
	if err := r.start(binary); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return r, nil
}

func (r *Registry) start(binary string) error {
	conf := "version: 0.1\n" +
		"log: {level: info, accesslog: {disabled: true}}\n" +
		"storage:\n  filesystem: {rootdirectory: " + filepath.Join(r.dir, "data") + "}\n" +
		"  delete: {enabled: true}\n  maintenance: {uploadpurging: {enabled: false}}\n" +
		"http: {addr: \"127.0.0.1:0\", secret: test" + r.tlsConf() + "}\n"
	if r.cfg.Username != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(r.cfg.Password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		users := filepath.Join(r.dir, "htpasswd")
		if err := os.WriteFile(users, fmt.Appendf(nil, "%s:%s\n", r.cfg.Username, hash), 0o600); err != nil {
			return err
		}
		conf += "auth: {htpasswd: {realm: test, path: " + users + "}}\n"
	}
	if r.cfg.TokenRealm != "" {
		conf += fmt.Sprintf("auth: {token: {realm: %q, service: %q, issuer: %q, rootcertbundle: %q}}\n",
			r.cfg.TokenRealm, r.cfg.TokenService, r.cfg.TokenIssuer, r.cfg.TokenCertFile)
	}
	path := filepath.Join(r.dir, "config.yml")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return err
	}
	r.cmd = exec.Command(binary, "serve", path)
	r.cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	listening := make(chan string, 1)
	go r.readLog(stderr, listening)
	select {
	case r.Addr = <-listening:
		return nil
	case <-r.logDone:
		return errors.Join(fmt.Errorf("test registry: docker-registry ended early: %s", r.log.String()), r.cmd.Wait())
	case <-time.After(startPatience):
		return errors.Join(fmt.Errorf("test registry: docker-registry does not listen after %s", startPatience), r.stopProcess())
	}
}

func (r *Registry) tlsConf() string {
	if r.cfg.CertFile == "" {
		return ""
	}
	conf := fmt.Sprintf(", tls: {certificate: %q, key: %q", r.cfg.CertFile, r.cfg.KeyFile)
	if r.cfg.ClientCAFile != "" {
		conf += fmt.Sprintf(", clientcas: [%q]", r.cfg.ClientCAFile)
	}
	return conf + "}"
}

// url is the registry's address with its scheme.
func (r *Registry) url() string {
	if r.cfg.CertFile != "" {
		return "https://" + r.Addr
	}
	return "http://" + r.Addr
}

var listenLine = regexp.MustCompile(`listening on ([0-9.]+:[0-9]+)`)

func (r *Registry) readLog(stderr io.Reader, listening chan<- string) {
	defer close(r.logDone)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if m := listenLine.FindSubmatch(lines.Bytes()); m != nil {
			select {
			case listening <- string(m[1]):
			default:
			}
		}
		if r.log.Len() < 1<<20 {
			r.log.Write(append(lines.Bytes(), '\n'))
		}
	}
}

// Stop ends the registry and removes its storage.
func (r *Registry) Stop() error {
	return errors.Join(r.stopProcess(), os.RemoveAll(r.dir))
}

func (r *Registry) stopProcess() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.logDone
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// WriteHosts writes dir/HOST/hosts.toml so that images of host (docker.io, registry.k8s.io) are pulled from this
// registry, and from nowhere else.
func (r *Registry) WriteHosts(dir, host string) error {
	hostDir := filepath.Join(dir, host)
	if err := os.MkdirAll(hostDir, 0o755); err != nil {
		return err
	}
	conf := fmt.Sprintf("server = %q\n", r.url())
	return os.WriteFile(filepath.Join(hostDir, "hosts.toml"), []byte(conf), 0o644)
}

// Push builds an image and pushes it as repository:tag of this registry. It returns the manifest's digest.
func (r *Registry) Push(ctx context.Context, img ociarchive.Image, repository, tag string) (digest.Digest, error) {
	b, err := ociarchive.Build(img)
	if err != nil {
		return "", err
	}
	return b.Manifest.Digest, r.PushBuilt(ctx, b, repository, tag)
}

// PushBuilt pushes an image that has been built.
func (r *Registry) PushBuilt(ctx context.Context, b *ociarchive.Built, repository, tag string) error {
	for _, desc := range append([]ocispec.Descriptor{b.Config}, b.Layers...) {
		if err := r.pushBlob(ctx, repository, desc, b.Blobs[desc.Digest]); err != nil {
			return fmt.Errorf("pushing %s: %w", repository, err)
		}
	}
	return r.PushManifest(ctx, repository, tag, b.Manifest.MediaType, b.Blobs[b.Manifest.Digest])
}

// PushManifest stores a manifest, or an index, under a tag or a digest.
func (r *Registry) PushManifest(ctx context.Context, repository, reference, mediaType string, raw []byte) error {
	resp, err := r.do(ctx, http.MethodPut, r.url()+"/v2/"+repository+"/manifests/"+reference, mediaType, raw, http.StatusCreated)
	if err != nil {
		return fmt.Errorf("pushing %s:%s: %w", repository, reference, err)
	}
	return resp.Body.Close()
}

func (r *Registry) pushBlob(ctx context.Context, repository string, desc ocispec.Descriptor, data []byte) error {
	base := r.url() + "/v2/" + repository + "/blobs/"
	if resp, err := r.do(ctx, http.MethodHead, base+desc.Digest.String(), "", nil, http.StatusOK); err == nil {
		return resp.Body.Close()
	}
	resp, err := r.do(ctx, http.MethodPost, base+"uploads/", "", nil, http.StatusAccepted)
	if err != nil {
		return err
	}
	resp.Body.Close()
	to := resp.Header.Get("Location")
	if strings.HasPrefix(to, "/") {
		to = r.url() + to
	}
	sep := "?"
	if strings.Contains(to, "?") {
		sep = "&"
	}
	resp, err = r.do(ctx, http.MethodPut, to+sep+"digest="+desc.Digest.String(), "application/octet-stream", data, http.StatusCreated)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (r *Registry) do(ctx context.Context, method, url, contentType string, body []byte, want int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest+", "+ocispec.MediaTypeImageIndex+", */*")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.cfg.Username != "" {
		req.SetBasicAuth(r.cfg.Username, r.cfg.Password)
	}
	client := r.cfg.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != want {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, said)
	}
	return resp, nil
}
