package act

import (
	"context"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/pullauth"
)

// Reasons of events about credentials. The first one is a kubelet's.
const (
	reasonPullSecret         = "FailedToRetrieveImagePullSecret"
	reasonCredentialProvider = "CredentialProviderFailed"
)

// Credentials is where credentials for pulls come from.
type Credentials struct {
	// Objects are the pull secrets that pods name.
	Objects objects.Reader
	// Providers are the node's credential provider plugins.
	Providers *pullauth.Providers
}

// credentials are those for an image in the order in which they are tried: of the pod's pull secrets, then of the node's credential
// provider plugins. What could not be had is told by events, and returned for the error of a pull that fails.
func (w *imageWork) credentials(ctx context.Context, ref string) (auths []*criv1.AuthConfig, missing []string) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, nil // it was looked at before
	}
	var secrets, plugins pullauth.Keyring
	var broken []string
	for _, s := range w.pod.Spec.ImagePullSecrets {
		if s.Name == "" {
			continue // the API allows it
		}
		secret, err := objects.Get[*v1.Secret](ctx, w.Pulls.Objects, objects.Name{Kind: objects.Secret, Namespace: w.pod.Namespace, Name: s.Name})
		if err == nil {
			err = secrets.AddSecret(secret)
		}
		if err != nil {
			broken = append(broken, s.Name)
			missing = append(missing, fmt.Sprintf("pull secret %s: %s", s.Name, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
	}
	if ctx.Err() != nil {
		return nil, nil
	}
	if len(broken) > 0 {
		w.Tell.Event(w.pod, "", v1.EventTypeWarning, reasonPullSecret, fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed. %s",
			strings.Join(broken, ", "), strings.Join(missing, "; ")))
	}
	if err := w.Pulls.Providers.Add(ctx, named.Name(), &plugins); err != nil && ctx.Err() == nil {
		why := strings.ReplaceAll(err.Error(), "\n", "; ")
		missing = append(missing, why)
		w.warn(reasonCredentialProvider, why)
	}
	return append(secrets.Lookup(named.Name()), plugins.Lookup(named.Name())...), missing
}
