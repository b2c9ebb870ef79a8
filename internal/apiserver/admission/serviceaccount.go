package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"

	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/pods"
)

// ServiceAccountGetter reads a service account as a cache has it or, fresh, as it is in the store. What is not there is a NotFound of the API.
type ServiceAccountGetter interface {
	ServiceAccount(ctx context.Context, namespace, name string, fresh bool) (*corev1.ServiceAccount, error)
}

// ServiceAccounts gives new pods a service account, which must be there, and what they need to act for it: the account's pull secrets, and a volume with a
// token, in each container that mounts nothing else in its place.
type ServiceAccounts struct {
	Accounts ServiceAccountGetter
}

var (
	_ admission.MutationInterface   = ServiceAccounts{}
	_ admission.ValidationInterface = ServiceAccounts{}
)

const (
	// defaultAccount is the account of pods that name none.
	defaultAccount = "default"
	// tokenVolume is the beginning of the name of the volume that is added, tokenPath is where client libraries look for what is in it.
	tokenVolume = "kube-api-access-"
	tokenPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the life of the token there. Beside an hour it has what makes it known, to a Kubernetes API server, as one that was added.
	tokenSeconds = 3607
	// rootCA is the ConfigMap with the API server's authority, and its key.
	rootCA    = "kube-root-ca.crt"
	rootCAKey = "ca.crt"
)

// Handles implements admission.Interface.
func (ServiceAccounts) Handles(op admission.Operation) bool { return op == admission.Create }

// newPod is the pod that a request creates; nil: it creates something else.
func newPod(a admission.Attributes) *corev1.Pod {
	if a.GetOperation() != admission.Create || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	pod, _ := a.GetObject().(*corev1.Pod)
	return pod
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// Admit implements admission.MutationInterface. A mirror pod stays as its node wrote it.
func (s ServiceAccounts) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := newPod(a)
	if pod == nil || isMirror(pod) {
		return nil
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := s.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return refuse(a, pod, err)
	}
	if automounts(account, pod) {
		addToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return nil
}

// Validate implements admission.ValidationInterface: others may have changed the pod since.
func (s ServiceAccounts) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := newPod(a)
	switch {
	case pod == nil:
		return nil
	case isMirror(pod):
		return checkMirror(a, pod)
	case pod.Spec.ServiceAccountName == "":
		return admission.NewForbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	if _, err := s.find(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName); err != nil {
		return refuse(a, pod, err)
	}
	return nil
}

func refuse(a admission.Attributes, pod *corev1.Pod, err error) error {
	return admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), pod.Spec.ServiceAccountName, err))
}

// checkMirror refuses a node's pod that would give the node what it has no right to.
func checkMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference service accounts"))
	}
	for r := range pods.References(pod) {
		if r.Kind == pods.Secret {
			return admission.NewForbidden(a, errors.New("a mirror pod may not reference secrets"))
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return admission.NewForbidden(a, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
		}
	}
	return nil
}

// Whoever makes a namespace and a pod in it at once is not refused because the controller of the accounts has not been there yet: for the account that it
// makes the pod waits that long, and it is looked that often.
const (
	accountPatience = 2 * time.Second
	accountPace     = 20 * time.Millisecond
)

func (s ServiceAccounts) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := s.Accounts.ServiceAccount(ctx, namespace, name, false)
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	for deadline := time.Now().Add(accountPatience); ; {
		account, err = s.Accounts.ServiceAccount(ctx, namespace, name, true)
		if !apierrors.IsNotFound(err) {
			return account, err
		}
		if name != defaultAccount || time.Now().After(deadline) {
			return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		}
		if wait.For(ctx, accountPace) != nil {
			return nil, ctx.Err()
		}
	}
}

// automounts says whether a pod gets a token. The pod's own word goes before the account's.
func automounts(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// addToken adds the volume, unless there is one of that name already, and mounts it wherever nothing is mounted in its place.
func addToken(spec *corev1.PodSpec) {
	name := ""
	if i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolume) }); i >= 0 {
		name = spec.Volumes[i].Name
	}
	missing := name == ""
	if missing {
		name = names.SimpleNameGenerator.GenerateName(tokenVolume)
	}
	needed := false
	for _, c := range pods.Containers(spec) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
			continue
		}
		needed = true
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
	}
	if missing && needed {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// tokenSource are the files that a program in a pod reaches the API with.
func tokenSource() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, int64(tokenSeconds)
	return &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCA}, Items: []corev1.KeyToPath{{Key: rootCAKey, Path: rootCAKey}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}
}
