// Package env resolves the environment of a container: literal values with $(NAME) expansion, fields of the pod,
// resources, keys of ConfigMaps and Secrets, and of files that other containers of the pod have written.
package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/pods"
)

// NoKey is the error of a key that a ConfigMap or Secret has not.
type NoKey struct{ Words string }

// Error implements error.
func (e *NoKey) Error() string { return e.Words }

// Input is what a container's environment depends on.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// PodIPs and HostIPs stand for status.podIP(s) and status.hostIP(s): at this time the pod's status may not have
	// been written.
	PodIPs, HostIPs []string
	// Allocatable stands for the limits that a container does not set.
	Allocatable v1.ResourceList
	// Objects are what variables refer to.
	Objects objects.Reader
	// Services are variables that are there, unless the container has its own of their names.
	Services []podspec.EnvVar
	// Files reads a file of a volume of the pod, which fileKeyRef refers to; one that is not there is fs.ErrNotExist. Nil: no variable can come from a file.
	Files func(volume, path string) ([]byte, error)
}

// Resolve returns the variables, the later of one name winning, in the order of their first appearance.
func Resolve(ctx context.Context, in Input) ([]podspec.EnvVar, error) {
	r := &resolver{in: in, values: map[string]string{}, services: map[string]string{}}
	for _, e := range in.Services {
		r.services[e.Name] = e.Value
	}
	for _, from := range in.Container.EnvFrom {
		if err := r.from(ctx, from); err != nil {
			return nil, err
		}
	}
	for _, e := range in.Container.Env {
		value, found, err := r.value(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s of container %s: %w", e.Name, in.Container.Name, err)
		}
		if found {
			r.set(e.Name, value)
		}
	}
	for _, e := range in.Services {
		if _, own := r.values[e.Name]; !own {
			r.set(e.Name, e.Value)
		}
	}
	out := make([]podspec.EnvVar, 0, len(r.order))
	for _, name := range r.order {
		out = append(out, podspec.EnvVar{Name: name, Value: r.values[name]})
	}
	return out, nil
}

type resolver struct {
	in     Input
	order  []string
	values map[string]string
	// services are the variables of services by their names.
	services map[string]string
}

func (r *resolver) set(name, value string) {
	if _, ok := r.values[name]; !ok {
		r.order = append(r.order, name)
	}
	r.values[name] = value
}

// lookup is what $(NAME) stands for.
func (r *resolver) lookup(name string) (value string, ok bool) {
	if value, ok = r.values[name]; !ok {
		value, ok = r.services[name]
	}
	return value, ok
}

func (r *resolver) configMap(ctx context.Context, name string) (*v1.ConfigMap, error) {
	return objects.Get[*v1.ConfigMap](ctx, r.in.Objects, objects.Name{Kind: objects.ConfigMap, Namespace: r.in.Pod.Namespace, Name: name})
}

func (r *resolver) secret(ctx context.Context, name string) (*v1.Secret, error) {
	return objects.Get[*v1.Secret](ctx, r.in.Objects, objects.Name{Kind: objects.Secret, Namespace: r.in.Pod.Namespace, Name: name})
}

func (r *resolver) from(ctx context.Context, from v1.EnvFromSource) error {
	data := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := r.configMap(ctx, from.ConfigMapRef.Name)
		if missing(err, from.ConfigMapRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		data = cm.Data
	case from.SecretRef != nil:
		s, err := r.secret(ctx, from.SecretRef.Name)
		if missing(err, from.SecretRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		for k, v := range s.Data {
			data[k] = string(v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(data)) {
		if name := from.Prefix + k; validName(name) {
			r.set(name, data[k])
		}
	}
	return nil
}

// validName: the kernel only demands that there is no "=" and no zero byte in it.
func validName(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

func (r *resolver) value(ctx context.Context, e v1.EnvVar) (value string, found bool, err error) {
	if e.ValueFrom == nil {
		return podspec.Expand(e.Value, r.lookup), true, nil
	}
	switch src := e.ValueFrom; {
	case src.FieldRef != nil:
		value, err = Field(r.in.Pod, src.FieldRef.FieldPath, r.in.PodIPs, r.in.HostIPs)
		return value, true, err
	case src.ResourceFieldRef != nil:
		c := r.in.Container
		if name := src.ResourceFieldRef.ContainerName; name != "" {
			if _, c = pods.ContainerNamed(&r.in.Pod.Spec, name); c == nil {
				return "", false, fmt.Errorf("resourceFieldRef.containerName: the pod has no container %q", name)
			}
		}
		value, err = Resource(r.in.Pod, c.Name, src.ResourceFieldRef, r.in.Allocatable)
		return value, true, err
	case src.ConfigMapKeyRef != nil:
		return r.configMapKey(ctx, src.ConfigMapKeyRef)
	case src.SecretKeyRef != nil:
		return r.secretKey(ctx, src.SecretKeyRef)
	case src.FileKeyRef != nil && r.in.Files != nil:
		return r.fileKey(src.FileKeyRef)
	default:
		return "", false, fmt.Errorf("its valueFrom is of a kind that is not supported")
	}
}

func (r *resolver) configMapKey(ctx context.Context, ref *v1.ConfigMapKeySelector) (string, bool, error) {
	cm, err := r.configMap(ctx, ref.Name)
	if missing(err, ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	v, ok := cm.Data[ref.Key]
	if !ok && !optional(ref.Optional) {
		return "", false, &NoKey{fmt.Sprintf("couldn't find key %s in ConfigMap %s/%s", ref.Key, r.in.Pod.Namespace, ref.Name)}
	}
	return v, ok, nil
}

func (r *resolver) secretKey(ctx context.Context, ref *v1.SecretKeySelector) (string, bool, error) {
	s, err := r.secret(ctx, ref.Name)
	if missing(err, ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	v, ok := s.Data[ref.Key]
	if !ok && !optional(ref.Optional) {
		return "", false, &NoKey{fmt.Sprintf("couldn't find key %s in Secret %s/%s", ref.Key, r.in.Pod.Namespace, ref.Name)}
	}
	return string(v), ok, nil
}

func (r *resolver) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	content, err := r.in.Files(ref.VolumeName, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && optional(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	value, found, err := FileValue(string(content), ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !found && !optional(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, found, nil
}

func optional(o *bool) bool { return o != nil && *o }

func missing(err error, o *bool) bool { return optional(o) && apierrors.IsNotFound(err) }
