package kinds

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod.dev/monopod/internal/agent/env"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/pods"
)

// file is one file of a written volume.
type file struct {
	data []byte
	mode os.FileMode
	// owner is the user whose it is; nil: root.
	owner *int64
}

// payload is the content of a written volume, by path below its root.
type payload map[string]file

// written is a volume whose files the agent writes from objects.
type written struct {
	inDir
	cfg Config
}

// Facts implements Kind.
func (*written) Facts() Facts { return Facts{Own: true, Holds: true, Follows: true} }

// Mount implements Kind. What the agent writes from objects is the agent's to change.
func (*written) Mount(v *Volume) (Source, error) { return Source{Path: v.Dir, ReadOnly: true}, nil }

// Update implements Kind: readers see all of one version or all of the other.
func (w *written) Update(ctx context.Context, v *Volume) error { return w.Setup(ctx, v) }

// Setup implements Kind.
func (w *written) Setup(ctx context.Context, vol *Volume) error {
	pod, v, dir := vol.Pod, vol.Spec, vol.Dir
	p := payload{}
	secret := v.Secret != nil
	var err error
	switch {
	case v.ConfigMap != nil:
		err = w.addConfigMap(ctx, p, pod, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, unsaid{v.ConfigMap.DefaultMode, v.ConfigMap.DefaultUser})
	case v.Secret != nil:
		err = w.addSecret(ctx, p, pod, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, unsaid{v.Secret.DefaultMode, v.Secret.DefaultUser})
	case v.DownwardAPI != nil:
		err = w.addDownward(p, pod, v.DownwardAPI.Items, unsaid{v.DownwardAPI.DefaultMode, v.DownwardAPI.DefaultUser})
	case v.Projected != nil:
		secret, err = w.addProjected(ctx, p, pod, v.Name, v.Projected)
	}
	if err != nil {
		return err
	}
	if err := mkdir(dir, 0o755); err != nil {
		return err
	}
	if secret {
		// Secrets are not written to a disk.
		if err := mountTmpfs(dir, 0, 0o755); err != nil {
			return err
		}
	}
	return replace(dir, p, fsGroup(pod))
}

const defaultMode = 0o644

// unsaid is what holds for files of which nothing is said: their mode, and whose they are.
type unsaid struct {
	mode *int32
	user *int64
}

func (u unsaid) modeOf(item *int32) os.FileMode {
	switch {
	case item != nil:
		return os.FileMode(*item) & 0o777
	case u.mode != nil:
		return os.FileMode(*u.mode) & 0o777
	}
	return defaultMode
}

func (u unsaid) userOf(item *int64) *int64 {
	if item != nil {
		return item
	}
	return u.user
}

// add puts a file into the payload. The API server has validated the path; a second look keeps a faulty one inside the volume.
func (p payload) add(path string, f file) error {
	clean := filepath.Clean(path)
	if !filepath.IsLocal(clean) || strings.HasPrefix(clean, "..") || clean == "." {
		return fmt.Errorf("path %q leads out of the volume", path)
	}
	p[clean] = f
	return nil
}

// addOwn adds what was made for the pod (a token, a key), which nobody reads but those for whom it is: the user who is named, or the user of the containers if all have
// the same one, and the group of the volumes. Where none is known it has the mode of the volume's other files.
func (p payload) addOwn(path string, data []byte, pod *v1.Pod, user *int64, u unsaid) error {
	f := file{data: data, mode: 0o600, owner: u.userOf(user)}
	if f.owner == nil {
		f.owner = onlyUser(pod)
	}
	if f.owner == nil && fsGroup(pod) < 0 {
		f.mode = u.modeOf(nil)
	}
	return p.add(path, f)
}

// onlyUser is the user that all containers of a pod run as; nil: they differ, or the specification does not say.
func onlyUser(pod *v1.Pod) (user *int64) {
	for role, c := range pods.Containers(&pod.Spec) {
		if role == pods.Ephemeral {
			continue // they may look at the pod, and are nobody that it was made for
		}
		u := podspec.RunAsUser(pod, c)
		if u == nil || user != nil && *user != *u {
			return nil
		}
		user = u
	}
	return user
}

func (p payload) addKeys(kind string, data map[string][]byte, items []v1.KeyToPath, optional *bool, u unsaid) error {
	if len(items) == 0 {
		for k, v := range data {
			if err := p.add(k, file{data: v, mode: u.modeOf(nil), owner: u.user}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, it := range items {
		v, ok := data[it.Key]
		if !ok && optional != nil && *optional {
			continue
		}
		if !ok {
			return &env.NoKey{Words: fmt.Sprintf("%s has no key %q", kind, it.Key)}
		}
		if err := p.add(it.Path, file{data: v, mode: u.modeOf(it.Mode), owner: u.userOf(it.User)}); err != nil {
			return err
		}
	}
	return nil
}

func (w *written) addConfigMap(ctx context.Context, p payload, pod *v1.Pod, name string, items []v1.KeyToPath, optional *bool, u unsaid) error {
	cm, err := objects.Get[*v1.ConfigMap](ctx, w.cfg.Objects, objects.Name{Kind: objects.ConfigMap, Namespace: pod.Namespace, Name: name})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return p.addKeys("ConfigMap "+pod.Namespace+"/"+name, data, items, optional, u)
}

func (w *written) addSecret(ctx context.Context, p payload, pod *v1.Pod, name string, items []v1.KeyToPath, optional *bool, u unsaid) error {
	s, err := objects.Get[*v1.Secret](ctx, w.cfg.Objects, objects.Name{Kind: objects.Secret, Namespace: pod.Namespace, Name: name})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return err
	}
	return p.addKeys("Secret "+pod.Namespace+"/"+name, s.Data, items, optional, u)
}

func (w *written) addDownward(p payload, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, u unsaid) error {
	for _, it := range items {
		var value string
		var err error
		switch {
		case it.FieldRef != nil:
			value, err = env.Field(pod, it.FieldRef.FieldPath, nil, w.cfg.HostIPs)
		case it.ResourceFieldRef != nil:
			of := it.ResourceFieldRef.ContainerName
			if _, c := pods.ContainerNamed(&pod.Spec, of); c == nil {
				return fmt.Errorf("file %s: the pod has no container %q", it.Path, of)
			}
			value, err = env.Resource(pod, of, it.ResourceFieldRef, w.cfg.Allocatable())
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", it.Path, err)
		}
		if err := p.add(it.Path, file{data: []byte(value), mode: u.modeOf(it.Mode), owner: u.userOf(it.User)}); err != nil {
			return err
		}
	}
	return nil
}

// addProjected adds all sources, the later winning; secret says that the volume holds something secret.
func (w *written) addProjected(ctx context.Context, p payload, pod *v1.Pod, volume string, v *v1.ProjectedVolumeSource) (secret bool, err error) {
	u := unsaid{v.DefaultMode, v.DefaultUser}
	for i, s := range v.Sources {
		switch {
		case s.ConfigMap != nil:
			err = w.addConfigMap(ctx, p, pod, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, u)
		case s.Secret != nil:
			secret = true
			err = w.addSecret(ctx, p, pod, s.Secret.Name, s.Secret.Items, s.Secret.Optional, u)
		case s.DownwardAPI != nil:
			err = w.addDownward(p, pod, s.DownwardAPI.Items, u)
		case s.ServiceAccountToken != nil:
			secret = true
			var token string
			if token, err = w.cfg.Tokens.Token(ctx, pod, s.ServiceAccountToken); err == nil {
				err = p.addOwn(s.ServiceAccountToken.Path, []byte(token), pod, s.ServiceAccountToken.User, u)
			}
		case s.ClusterTrustBundle != nil:
			var anchors []byte
			if anchors, err = w.cfg.Trust.Anchors(ctx, s.ClusterTrustBundle); err == nil {
				err = p.addOwn(s.ClusterTrustBundle.Path, anchors, pod, s.ClusterTrustBundle.User, u)
			}
		case s.PodCertificate != nil:
			secret = true
			err = w.addCertificate(ctx, p, pod, volume, i, s.PodCertificate, u)
		default:
			err = fmt.Errorf("a projected source of this kind is not supported")
		}
		if err != nil {
			return secret, err
		}
	}
	return secret, nil
}

// addCertificate adds a key and its certificates, in one file or in two.
func (w *written) addCertificate(ctx context.Context, p payload, pod *v1.Pod, volume string, index int, s *v1.PodCertificateProjection, u unsaid) error {
	c, err := w.cfg.Certificates.Credentials(ctx, pod, volume, index, s)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{s.CredentialBundlePath, slices.Concat(c.Key, c.Chain)}, {s.KeyPath, c.Key}, {s.CertificateChainPath, c.Chain}} {
		if f.path == "" {
			continue
		}
		if err := p.addOwn(f.path, f.data, pod, s.User, u); err != nil {
			return err
		}
	}
	return nil
}
