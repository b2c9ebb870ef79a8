package pod

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// Resource is the resource pods. timeline remembers when they were made and bound; nil: nobody does.
func Resource(timeline *podstarts.Recorder) resource.Resource {
	return resource.Made{
		At:     []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods")},
		Scheme: AddToScheme,
		Storages: func(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
			s, err := NewStorage(options, timeline)
			return s.Map(), err
		},
		Roles: rights(),
	}
}

// Elsewhere are the subresources that lead to a pod's agent, to what it serves, or to the budgets that let it go.
func Elsewhere(cfg Config) resource.Resource {
	locator := locator{pods: cfg.Pods, agents: cfg.Agents}
	connector := connector{locator, cfg.Authorizer}
	return resource.PartOf(corev1.SchemeGroupVersion.WithResource("pods"), map[string]rest.Storage{
		"pods/eviction":    &EvictionREST{cfg.Pods, cfg.Status, cfg.Budgets},
		"pods/log":         &LogREST{locator: locator},
		"pods/exec":        &ExecREST{connector},
		"pods/attach":      &AttachREST{connector},
		"pods/portforward": &PortForwardREST{connector},
		"pods/proxy":       &ProxyREST{locator},
	})
}

// rights: who may see pods does not see into their containers, because what they hold (secrets, identities) is more than a pod says.
func rights() (all []resource.Right) {
	add := func(role resource.Role, verbs []string, paths ...string) {
		for _, path := range paths {
			all = append(all, resource.Right{Role: role, Group: corev1.GroupName, Resource: path, Verbs: verbs})
		}
	}
	add(resource.Viewer, resource.ReadVerbs, "pods", "pods/log", "pods/status")
	add(resource.Editor, resource.ReadVerbs, "pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
	add(resource.Editor, resource.WriteVerbs, "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
	add(resource.Editor, []string{"create"}, "pods/eviction")
	return all
}

// AddToScheme adds to a scheme that knows core/v1 all that serving pods needs: defaults, the fields that can be
// selected by, and the options of the subresources.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(AddDefaults(scheme), AddFieldLabelConversion(scheme), AddOptions(scheme))
}
