// Package pullauth finds the credentials with which an image may be pulled: those of pull secrets, and those that credential
// provider plugins give.
//
// How an entry's key matches an image is a kubelet's way (kubernetes.io/docs/concepts/containers/images, "Interpretation of
// config.json"; k8s.io/kubelet/pkg/apis/credentialprovider/v1, CredentialProviderResponse.auth):
//
//   - the host has as many parts, and each matches; a part of the key may have wildcards ("*.example.com", "app*.example.com");
//   - the port is the same: a key without one is for hosts without one;
//   - the key's path is a prefix of the image's repository;
//   - a scheme, and a first path element v1 or v2, are ignored; index.docker.io is docker.io.
package pullauth

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring is a set of credentials, each for the images that its key matches. The zero value is empty.
type Keyring struct {
	keys []string // sorted backwards: of keys that match, the more specific one comes first
	// held are the parsed keys with their credentials, in the order in which these were added.
	held map[string]*entry
}

type entry struct {
	pattern pattern
	auths   []*cri.AuthConfig
}

// Add adds a credential for what the key matches. An error names the key.
func (k *Keyring) Add(key string, auth *cri.AuthConfig) error {
	p, err := parsePattern(key)
	if err != nil {
		return err
	}
	name := p.String()
	if k.held[name] == nil {
		if k.held == nil {
			k.held = map[string]*entry{}
		}
		k.held[name] = &entry{pattern: p}
		at, _ := slices.BinarySearchFunc(k.keys, name, func(have, add string) int { return strings.Compare(add, have) })
		k.keys = slices.Insert(k.keys, at, name)
	}
	k.held[name].auths = append(k.held[name].auths, auth)
	return nil
}

// Lookup returns the credentials for an image's repository (with its registry: docker.io/library/busybox), in the order in which
// they are to be tried; the same one is there once.
func (k *Keyring) Lookup(repository string) []*cri.AuthConfig {
	image, err := parsePattern(repository)
	if err != nil {
		return nil
	}
	var found []*cri.AuthConfig
	for _, key := range k.keys {
		e := k.held[key]
		if !e.pattern.matches(image) {
			continue
		}
		for _, auth := range e.auths {
			if !slices.ContainsFunc(found, func(have *cri.AuthConfig) bool { return same(have, auth) }) {
				found = append(found, auth)
			}
		}
	}
	return found
}

func same(a, b *cri.AuthConfig) bool {
	return a.Username == b.Username && a.Password == b.Password && a.IdentityToken == b.IdentityToken && a.RegistryToken == b.RegistryToken
}

// pattern is a key, or a repository, in its parts.
type pattern struct {
	host []string // the parts between its dots
	port string
	path string // empty, or from its first slash on
}

func (p pattern) String() string {
	s := strings.Join(p.host, ".")
	if p.port != "" {
		s += ":" + p.port
	}
	return s + p.path
}

func parsePattern(key string) (pattern, error) {
	text := key
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return pattern{}, fmt.Errorf("%q names no registry: use HOST, HOST:PORT or HOST/PATH", key)
	}
	p := pattern{host: strings.Split(u.Hostname(), "."), port: u.Port(), path: u.Path}
	if strings.HasPrefix(p.path, "/v1/") || strings.HasPrefix(p.path, "/v2/") {
		p.path = p.path[len("/v1"):]
	}
	if p.path == "/" {
		p.path = ""
	}
	if u.Host == "index.docker.io" {
		p.host = p.host[1:]
	}
	for _, part := range p.host {
		if _, err := path.Match(part, ""); err != nil {
			return pattern{}, fmt.Errorf("%q has a wildcard that can't be read", key)
		}
	}
	return p, nil
}

func (p pattern) matches(image pattern) bool {
	if p.port != image.port || len(p.host) != len(image.host) || !strings.HasPrefix(image.path, p.path) {
		return false
	}
	for i, part := range p.host {
		if ok, err := path.Match(part, image.host[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
