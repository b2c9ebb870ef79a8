package worker

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// credentials are those of the pod's pull secrets that match the image, the most specific first. A secret that can't be
// read is an error, beside the credentials of the others.
func (w *Worker) credentials(ctx context.Context, pod *v1.Pod, image string) ([]*criv1.AuthConfig, error) {
	var found []match
	var errs []error
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := w.cfg.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m, err := matches(secret, image)
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", pod.Namespace, ref.Name, err))
		}
		found = append(found, m...)
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Compare(b.specific, a.specific) })
	var auths []*criv1.AuthConfig
	for _, m := range found {
		auths = append(auths, m.auth)
	}
	return auths, errors.Join(errs...)
}

// match is a credential for an image; specific is the length of the registry's path that matched.
type match struct {
	specific int
	auth     *criv1.AuthConfig
}

// registryAuth is an entry of a docker configuration.
type registryAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// matches reads a secret of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg.
func matches(secret *v1.Secret, image string) ([]match, error) {
	var auths map[string]registryAuth
	var err error
	if data, ok := secret.Data[v1.DockerConfigJsonKey]; ok {
		var cfg struct {
			Auths map[string]registryAuth `json:"auths"`
		}
		err = json.Unmarshal(data, &cfg)
		auths = cfg.Auths
	} else {
		err = json.Unmarshal(secret.Data[v1.DockerConfigKey], &auths)
	}
	if err != nil {
		return nil, errors.New("it is not a docker configuration")
	}
	name := fullName(image)
	var found []match
	for registry, a := range auths {
		prefix := registryName(registry)
		if name != prefix && !strings.HasPrefix(name, prefix+"/") {
			continue
		}
		if a.Username == "" && a.Auth != "" {
			if raw, err := base64.StdEncoding.DecodeString(a.Auth); err == nil {
				a.Username, a.Password, _ = strings.Cut(string(raw), ":")
			}
		}
		found = append(found, match{len(prefix), &criv1.AuthConfig{
			Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
			ServerAddress: registry,
		}})
	}
	return found, nil
}

// fullName is the image's repository with its registry's host, as "docker.io/library/busybox" for "busybox".
func fullName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	host, _, ok := strings.Cut(image, "/")
	switch {
	case !ok:
		return "docker.io/library/" + image
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return "docker.io/" + image
	}
	return image
}

// registryName is the host and path of a configuration's entry, which may be written as a URL.
func registryName(entry string) string {
	_, name, ok := strings.Cut(entry, "://")
	if !ok {
		name = entry
	}
	name = strings.TrimSuffix(name, "/")
	if name == "index.docker.io/v1" || name == "index.docker.io" {
		return "docker.io"
	}
	return name
}
