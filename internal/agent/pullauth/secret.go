package pullauth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// registryAuth is an entry of a docker configuration.
type registryAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// AddSecret adds the credentials of a secret of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg. What of it
// can't be used is an error, which tells nothing of the credentials; the rest is added.
func (k *Keyring) AddSecret(secret *v1.Secret) error {
	auths, err := dockerConfig(secret)
	if err != nil {
		return err
	}
	var errs []error
	for _, registry := range slices.Sorted(maps.Keys(auths)) {
		auth, err := auths[registry].credential()
		if err == nil {
			err = k.Add(registry, auth)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %q: %w", registry, err))
		}
	}
	return errors.Join(errs...)
}

// dockerConfig are a secret's entries, by registry.
func dockerConfig(secret *v1.Secret) (map[string]registryAuth, error) {
	var auths map[string]registryAuth
	var key string
	var err error
	switch secret.Type {
	case v1.SecretTypeDockerConfigJson:
		key = v1.DockerConfigJsonKey
		var cfg struct {
			Auths map[string]registryAuth `json:"auths"`
		}
		err = json.Unmarshal(secret.Data[key], &cfg)
		auths = cfg.Auths
	case v1.SecretTypeDockercfg:
		key = v1.DockerConfigKey
		err = json.Unmarshal(secret.Data[key], &auths)
	default:
		return nil, fmt.Errorf("it is of type %q; a pull secret is of type %s or %s", secret.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
	}
	switch {
	case len(secret.Data[key]) == 0:
		return nil, fmt.Errorf("it has no data under the key %s", key)
	case err != nil:
		// The error of the decoder may show what it has read.
		return nil, fmt.Errorf("what it has under the key %s is not a docker configuration", key)
	}
	return auths, nil
}

// credential is the entry as CRI has it. auth, which is base64 of NAME:PASSWORD, goes before username and password.
func (a registryAuth) credential() (*cri.AuthConfig, error) {
	if a.Auth != "" {
		raw, err := base64.StdEncoding.WithPadding(base64.NoPadding).DecodeString(strings.TrimRight(strings.TrimSpace(a.Auth), "="))
		name, password, ok := strings.Cut(string(raw), ":")
		if err != nil || !ok {
			return nil, errors.New("its auth is not base64 of NAME:PASSWORD")
		}
		// docker pads it so.
		a.Username, a.Password = name, strings.Trim(password, "\x00")
	}
	// Without a server address it is for the registry of the image: the key may have wildcards, which runtimes do not know.
	return &cri.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}, nil
}
