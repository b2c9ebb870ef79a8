package pullauth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"
)

// ProviderConfig says which credential provider plugins there are.
type ProviderConfig struct {
	// File is a CredentialProviderConfig (kubelet.config.k8s.io/v1), YAML or JSON; empty: there are no plugins.
	File string
	// BinDir has the plugins' programs.
	BinDir string
	// Timeout is how long a plugin may take; 0: a minute, as with a kubelet.
	Timeout time.Duration
}

// providerAPIVersion is the version of the exec protocol that is spoken.
var providerAPIVersion = credentialprovider.SchemeGroupVersion.String()

// defaultTimeout is a kubelet's.
const defaultTimeout = time.Minute

// Providers runs credential provider plugins (k8s.io/kubelet/pkg/apis/credentialprovider/v1). It is safe for concurrent use. Each
// caller waits for the plugins that its own image needs, and for nothing else; a plugin that hangs is killed.
type Providers struct {
	ctx     context.Context
	plugins []*plugin
	wg      sync.WaitGroup
}

// LoadProviders reads the configuration and checks all of it; plugins under way end with ctx.
func LoadProviders(ctx context.Context, cfg ProviderConfig) (*Providers, error) {
	p := &Providers{ctx: ctx}
	if cfg.File == "" {
		return p, nil
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	raw, err := os.ReadFile(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("credential providers: %w", err)
	}
	var file kubeletconfig.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, fmt.Errorf("credential providers: %s: %s", cfg.File, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	if want := kubeletconfig.SchemeGroupVersion.String(); file.APIVersion != want || file.Kind != "CredentialProviderConfig" {
		return nil, fmt.Errorf("credential providers: %s: it is apiVersion %q, kind %q; this monopod reads apiVersion %q, kind CredentialProviderConfig",
			cfg.File, file.APIVersion, file.Kind, want)
	}
	var errs []error
	if len(file.Providers) == 0 {
		errs = append(errs, fmt.Errorf("credential providers: %s: providers is empty; name at least one", cfg.File))
	}
	seen := map[string]bool{}
	for i := range file.Providers {
		c := &file.Providers[i]
		at := fmt.Sprintf("credential providers: %s: providers[%d]", cfg.File, i)
		if c.Name != "" && seen[c.Name] {
			errs = append(errs, fmt.Errorf("%s.name %q is there twice", at, c.Name))
		}
		seen[c.Name] = true
		pl, faults := newPlugin(c, cfg)
		for _, f := range faults {
			errs = append(errs, fmt.Errorf("%s%s", at, f))
		}
		p.plugins = append(p.plugins, pl)
	}
	return p, errors.Join(errs...)
}

// newPlugin checks one provider; each fault begins with its field.
func newPlugin(c *kubeletconfig.CredentialProvider, cfg ProviderConfig) (_ *plugin, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	p := &plugin{name: c.Name, path: filepath.Join(cfg.BinDir, c.Name), dir: cfg.BinDir, args: c.Args, timeout: cfg.Timeout}
	switch {
	case c.Name == "" || c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/ "):
		fault(".name %q is no name of a program: it must have no '/' and no blanks", c.Name)
	default:
		if _, err := exec.LookPath(p.path); err != nil {
			fault(".name: %s; put the plugin there, or choose another directory", err)
		}
	}
	if c.APIVersion != providerAPIVersion {
		fault(".apiVersion is %q; this monopod speaks %s", c.APIVersion, providerAPIVersion)
	}
	if len(c.MatchImages) == 0 {
		fault(".matchImages is empty; say which images the plugin is for")
	}
	for i, m := range c.MatchImages {
		pat, err := parsePattern(m)
		if err != nil {
			fault(".matchImages[%d]: %s", i, err)
		}
		p.images = append(p.images, pat)
	}
	switch d := c.DefaultCacheDuration; {
	case d == nil:
		fault(`.defaultCacheDuration is missing; give a time, such as "10m", or "0s"`)
	case d.Duration < 0:
		fault(".defaultCacheDuration is %s; it must not be negative", d.Duration)
	default:
		p.cacheFor = d.Duration
	}
	if c.TokenAttributes != nil {
		fault(".tokenAttributes is not supported: this monopod gives plugins no tokens of service accounts")
	}
	for i, e := range c.Env {
		if e.Name == "" || strings.Contains(e.Name, "=") {
			fault(".env[%d].name is %q; it must be the name of a variable", i, e.Name)
		}
		p.env = append(p.env, e.Name+"="+e.Value)
	}
	p.cache.limit = cacheLimit
	return p, faults
}

// Add adds to the ring what the plugins give for an image's repository (with its registry, without tag and digest). The error tells
// of each plugin that failed, by its name; what the others have given is added.
func (p *Providers) Add(ctx context.Context, repository string, ring *Keyring) error {
	image, err := parsePattern(repository)
	if err != nil {
		return err
	}
	type answer struct {
		auths map[string]credentialprovider.AuthConfig
		err   error
	}
	var asked []*plugin
	for _, pl := range p.plugins {
		if pl.handles(image) {
			asked = append(asked, pl)
		}
	}
	answers := make([]chan answer, len(asked))
	for i, pl := range asked {
		answers[i] = make(chan answer, 1)
		go func() {
			auths, err := pl.credentials(ctx, p, repository, image)
			answers[i] <- answer{auths, err}
		}()
	}
	var errs []error
	for i, pl := range asked {
		a := <-answers[i]
		for key, auth := range a.auths {
			if err := ring.Add(key, &cri.AuthConfig{Username: auth.Username, Password: auth.Password}); err != nil {
				a.err = errors.Join(a.err, fmt.Errorf("its answer: %w", err))
			}
		}
		if a.err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", pl.name, a.err))
		}
	}
	return errors.Join(errs...)
}

// Wait returns when no plugin runs any more, after the context of LoadProviders has ended.
func (p *Providers) Wait() { p.wg.Wait() }
