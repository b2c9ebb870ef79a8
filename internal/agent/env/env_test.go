package env

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod.dev/monopod/internal/agent/objects"
)

// someObjects has one ConfigMap and one Secret, both "x".
type someObjects struct{}

func (someObjects) Get(_ context.Context, n objects.Name) (runtime.Object, error) {
	switch {
	case n.Name != "x":
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: string(n.Kind)}, n.Name)
	case n.Kind == objects.Secret:
		return &v1.Secret{Data: map[string][]byte{"S": []byte("s")}}, nil
	}
	return &v1.ConfigMap{Data: map[string]string{"B": "b", "A": "a", "C=D": "no name of a variable"}}, nil
}

func field(name, path string) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
}

func amount(name, res, divisor string) v1.EnvVar {
	r := &v1.ResourceFieldSelector{Resource: res}
	if divisor != "" {
		r.Divisor = resource.MustParse(divisor)
	}
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ResourceFieldRef: r}}
}

func fromMap(name, cm, key string, optional bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: cm}, Key: key, Optional: &optional}}}
}

func fromSecret(name, secret, key string, optional bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: secret}, Key: key, Optional: &optional}}}
}

func all(prefix, cm, secret string, optional bool) v1.EnvFromSource {
	s := v1.EnvFromSource{Prefix: prefix}
	if cm != "" {
		s.ConfigMapRef = &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: cm}, Optional: &optional}
	}
	if secret != "" {
		s.SecretRef = &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: secret}, Optional: &optional}
	}
	return s
}

func TestResolve(t *testing.T) {
	cases := []struct {
		name string
		from []v1.EnvFromSource
		env  []v1.EnvVar
		want string
		err  string
	}{
		{name: "literals, with what came before", env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$(C)$$(A)"}, {Name: "C", Value: "3"}},
			want: "A=1 B=1$(C)$(A) C=3"},
		{name: "the later wins, in the first one's place", env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "A", Value: "$(A)1"}},
			want: "A=11 B=2"},
		{name: "whole objects", from: []v1.EnvFromSource{all("P_", "x", "", false), all("", "", "x", false)}, want: "P_A=a P_B=b S=s"},
		{name: "and over them", from: []v1.EnvFromSource{all("", "x", "", false)}, env: []v1.EnvVar{{Name: "A", Value: "<$(A)>"}}, want: "A=<a> B=b"},
		{name: "missing but optional", from: []v1.EnvFromSource{all("", "y", "", true), all("", "", "y", true)},
			env: []v1.EnvVar{fromMap("A", "y", "k", true), fromMap("B", "x", "k", true), fromSecret("C", "y", "k", true)}, want: ""},
		{name: "a missing object", from: []v1.EnvFromSource{all("", "y", "", false)}, err: `configmaps "y" not found`},
		{name: "a missing key", env: []v1.EnvVar{fromMap("A", "x", "k", false)}, err: "couldn't find key k in ConfigMap ns/x"},
		{name: "a missing secret key", env: []v1.EnvVar{fromSecret("A", "x", "k", false)}, err: "couldn't find key k in Secret ns/x"},
		{name: "keys", env: []v1.EnvVar{fromMap("X", "x", "A", false), fromSecret("Y", "x", "S", false)}, want: "X=a Y=s"},
		{name: "fields", env: []v1.EnvVar{field("N", "metadata.name"), field("L", "metadata.labels['app']"), field("I", "status.podIP"), field("IS", "status.podIPs"),
			field("H", "status.hostIP"), field("O", "spec.nodeName"), field("U", "metadata.uid"), field("S", "spec.serviceAccountName"), field("NS", "metadata.namespace")},
			want: "N=p L=x I=1.1.1.1 IS=1.1.1.1,::1 H=2.2.2.2 O=node U=u S=sa NS=ns"},
		{name: "a field that there is not", env: []v1.EnvVar{field("N", "status.phase")}, err: `field path "status.phase"`},
		{name: "amounts", env: []v1.EnvVar{amount("C", "limits.cpu", ""), amount("CM", "limits.cpu", "1m"), amount("R", "requests.cpu", "1m"), amount("M", "limits.memory", "1Mi"),
			amount("RM", "requests.memory", ""), amount("E", "limits.ephemeral-storage", ""), amount("RE", "requests.ephemeral-storage", "")},
			want: "C=2 CM=1500 R=500 M=8 RM=0 E=99 RE=0"},
		{name: "no such kind of amount", env: []v1.EnvVar{amount("C", "cpu", "")}, err: "must be limits.NAME or requests.NAME"},
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"app": "x"}},
		Spec: v1.PodSpec{NodeName: "node", ServiceAccountName: "sa"}}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			container := &v1.Container{Name: "a", Env: c.env, EnvFrom: c.from, Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{"cpu": resource.MustParse("1500m")},
				Requests: v1.ResourceList{"cpu": resource.MustParse("500m")},
			}}
			pod := pod.DeepCopy()
			pod.Spec.Containers = []v1.Container{*container}
			got, err := Resolve(t.Context(), Input{
				Pod: pod, Container: container, PodIPs: []string{"1.1.1.1", "::1"}, HostIPs: []string{"2.2.2.2"}, Objects: someObjects{},
				Allocatable: v1.ResourceList{"memory": resource.MustParse("8Mi"), "ephemeral-storage": resource.MustParse("99")},
			})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			var said []string
			for _, e := range got {
				said = append(said, e.Name+"="+e.Value)
			}
			if s := strings.Join(said, " "); err != nil || s != c.want {
				t.Errorf("got  %s, %v\nwant %s", s, err, c.want)
			}
		})
	}
}

func TestLabelsAsAFile(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"b": `say "x"`, "a": "1"}}}
	if got, err := Field(pod, "metadata.labels", nil, nil); err != nil || got != "a=\"1\"\nb=\"say \\\"x\\\"\"" {
		t.Errorf("%q, %v", got, err)
	}
}
