package pullauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// Limits of what is read of a plugin.
const (
	maxAnswer = 1 << 20
	// maxComplaint is how much of its standard error an error shows.
	maxComplaint = 1 << 10
	// drainFor is how long its pipes are read after it has ended: a child of it may still hold them.
	drainFor = 2 * time.Second
)

// plugin is one credential provider.
type plugin struct {
	name, path, dir string
	args, env       []string
	images          []pattern
	cacheFor        time.Duration
	timeout         time.Duration

	cache cache
	// calls has one call at a time for an image: pods that need the same one wait for the same answer.
	calls singleflight.Group
}

func (p *plugin) handles(image pattern) bool {
	for _, m := range p.images {
		if m.matches(image) {
			return true
		}
	}
	return false
}

// credentials are the cached ones, or what the plugin says now.
func (p *plugin) credentials(ctx context.Context, all *Providers, repository string, image pattern) (map[string]credentialprovider.AuthConfig, error) {
	if auths, ok := p.cache.get(cacheKeys(repository, image), time.Now()); ok {
		return auths, nil
	}
	// It ends with the agent, not with the pod that was the first to ask.
	call := p.calls.DoChan(repository, func() (any, error) { return p.call(all.ctx, repository, image) })
	done := make(chan singleflight.Result, 1)
	all.wg.Go(func() { done <- <-call })
	select {
	case r := <-done:
		auths, _ := r.Val.(map[string]credentialprovider.AuthConfig)
		return auths, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// call asks the plugin and keeps its answer as long as that says.
func (p *plugin) call(ctx context.Context, repository string, image pattern) (map[string]credentialprovider.AuthConfig, error) {
	raw, err := p.run(ctx, repository)
	if err != nil {
		return nil, err
	}
	var resp credentialprovider.CredentialProviderResponse
	if err := json.Unmarshal(raw, &resp); err != nil {
		// The error of the decoder may show what it has read.
		return nil, fmt.Errorf("its answer of %d bytes is not a CredentialProviderResponse", len(raw))
	}
	if resp.APIVersion != providerAPIVersion || resp.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("its answer is apiVersion %q, kind %q; it was asked for %q, kind CredentialProviderResponse", resp.APIVersion, resp.Kind, providerAPIVersion)
	}
	keys := cacheKeys(repository, image)
	key, ok := keys[resp.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("its answer has the cacheKeyType %q; it must be Image, Registry or Global", resp.CacheKeyType)
	}
	keep := p.cacheFor
	if resp.CacheDuration != nil {
		keep = resp.CacheDuration.Duration
	}
	p.cache.put(key, resp.Auth, keep, time.Now())
	return resp.Auth, nil
}

// cacheKeys are the keys under which an answer for an image may be cached.
func cacheKeys(repository string, image pattern) map[credentialprovider.PluginCacheKeyType]string {
	registry := image
	registry.path = ""
	return map[credentialprovider.PluginCacheKeyType]string{
		credentialprovider.ImagePluginCacheKeyType:    "image " + repository,
		credentialprovider.RegistryPluginCacheKeyType: "registry " + registry.String(),
		credentialprovider.GlobalPluginCacheKeyType:   "global",
	}
}

// run executes the plugin and returns its standard output.
func (p *plugin) run(ctx context.Context, repository string) ([]byte, error) {
	request, err := json.Marshal(credentialprovider.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: providerAPIVersion, Kind: "CredentialProviderRequest"}, Image: repository,
	})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, p.path, p.args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdin = bytes.NewReader(request)
	stdout, stderr := &prefix{max: maxAnswer}, &prefix{max: maxComplaint}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainFor
	err = cmd.Run()
	said := strings.Join(strings.Fields(stderr.buf.String()), " ")
	if stderr.cut {
		said += " ..."
	}
	switch {
	case limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("it had not answered after %s and was killed", p.timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		_ = cmd.Cancel() // the child too; it may be gone by now
		err = errors.New("it has ended, and a child of it still holds its standard output")
	}
	switch {
	case err != nil && said != "":
		return nil, fmt.Errorf("%w: %s", err, said)
	case err != nil:
		return nil, err
	case stdout.cut:
		return nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return stdout.buf.Bytes(), nil
}

// prefix keeps the first bytes of what is written. The buffer is not embedded: its ReadFrom would get round the limit.
type prefix struct {
	buf bytes.Buffer
	max int
	cut bool
}

func (p *prefix) Write(b []byte) (int, error) {
	keep := min(len(b), p.max-p.buf.Len())
	p.cut = p.cut || keep < len(b)
	p.buf.Write(b[:keep])
	return len(b), nil
}
