// Package serviceaccount serves the resource serviceaccounts of core/v1 and its subresource token, which makes credentials of one.
//
// A service account is who a pod is to the API server. It has no password: whoever may create its tokens has tokens made, which end by themselves, and
// with the object that they are bound to. Secrets of type kubernetes.io/service-account-token are filled by a controller.
package serviceaccount

import (
	"fmt"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// enforceMountableSecrets is the annotation by which a service account's pods may refer to no other secrets than the account's own.
const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// Resource is the resource serviceaccounts.
func Resource() resource.Of[*corev1.ServiceAccount, *corev1.ServiceAccountList] {
	return resource.Of[*corev1.ServiceAccount, *corev1.ServiceAccountList]{
		Plural:     "serviceaccounts",
		Short:      []string{"sa"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Grants:     []resource.Right{{Role: resource.Editor, Verbs: []string{"impersonate"}}},
		Honours: apifields.Table{
			reflect.TypeFor[corev1.ServiceAccount]():       apifields.All("Secrets", "ImagePullSecrets", "AutomountServiceAccountToken"),
			reflect.TypeFor[corev1.ObjectReference]():      apifields.All("Name").And(apifields.Left, "Kind", "Namespace", "UID", "APIVersion", "ResourceVersion", "FieldPath"), // only names are kept
			reflect.TypeFor[corev1.LocalObjectReference](): apifields.All("Name"),
		},
		Names:         apivalidation.ValidateServiceAccountName,
		Prepare:       onlyNames,
		PrepareUpdate: func(sa, _ *corev1.ServiceAccount) { onlyNames(sa) },
		Warn: func(sa *corev1.ServiceAccount) []string {
			if _, ok := sa.Annotations[enforceMountableSecrets]; !ok {
				return nil
			}
			return []string{fmt.Sprintf("metadata.annotations[%s]: it is deprecated, and not enforced here; secrets are kept apart by namespaces", enforceMountableSecrets)}
		},
		Store:   func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: []resource.Column[*corev1.ServiceAccount]{{Name: "Name"}, {Name: "Age"}},
		Scheme:  addTokenDefaults,
	}
}

// Tokens is the subresource token, which makes credentials of accounts.
func Tokens(accounts rest.Getter, config TokenConfig) resource.Resource {
	return resource.PartOf(corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		map[string]rest.Storage{"serviceaccounts/token": &tokenREST{TokenConfig: config, accounts: accounts}},
		resource.Right{Role: resource.Editor, Group: corev1.GroupName, Resource: "serviceaccounts/token", Verbs: []string{"create"}})
}

// onlyNames drops all of a reference to a secret but its name: secrets are in the account's namespace (core/v1, ServiceAccount.secrets).
func onlyNames(sa *corev1.ServiceAccount) {
	for i, s := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: s.Name}
	}
}

// defaultTokenSeconds is how long a token is good for that was asked for without saying so.
const defaultTokenSeconds = 3600

func addTokenDefaults(s *runtime.Scheme) error {
	s.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(obj any) {
		if spec := &obj.(*authenticationv1.TokenRequest).Spec; spec.ExpirationSeconds == nil {
			seconds := int64(defaultTokenSeconds)
			spec.ExpirationSeconds = &seconds
		}
	})
	return nil
}
