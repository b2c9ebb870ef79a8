package apiserver

import (
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"monopod.dev/monopod/internal/apiserver/agents"
	"monopod.dev/monopod/internal/apiserver/registry/configmap"
	"monopod.dev/monopod/internal/apiserver/registry/event"
	"monopod.dev/monopod/internal/apiserver/registry/lease"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/registry/review"
	"monopod.dev/monopod/internal/apiserver/registry/secret"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// newScheme is the scheme of all resources.
func newScheme() (*scheme.Set, error) {
	return scheme.New(
		configmap.AddFields,
		event.AddToScheme,
		lease.AddFields,
		namespace.AddToScheme,
		node.AddFields,
		pod.AddToScheme,
		secret.AddToScheme,
	)
}

// uncached: events are many and hardly watched, so a cache would cost more than it saves.
func uncached() []schema.GroupResource { return []schema.GroupResource{corev1.Resource("events")} }

// resources are the storages of all that is served, by API group and path.
type resources struct {
	namespaces namespace.Storage
	byGroup    map[string]map[string]rest.Storage
}

// newResources opens all storages.
func (s *Server) newResources(tokens authenticator.Request, authz authorizer.Authorizer) (*resources, error) {
	var errs []error
	must := func(m map[string]rest.Storage, err error) map[string]rest.Storage {
		errs = append(errs, err)
		return m
	}
	ns, err := namespace.NewStorage(s.store)
	errs = append(errs, err)
	nodes, err := node.NewStorage(s.store)
	errs = append(errs, err)
	events, err := event.NewStorage(s.store)
	errs = append(errs, err)
	configmaps, secrets, leases := must(configmap.NewStorage(s.store)), must(secret.NewStorage(s.store)), must(lease.NewStorage(s.store))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	connections, err := agents.New(agents.Config{Nodes: nodes.Node, CA: s.pki.CA, ClientCertFile: s.pki.APIServerAgent.CertFile, ClientKeyFile: s.pki.APIServerAgent.KeyFile})
	if err != nil {
		return nil, err
	}
	pods, err := pod.NewStorage(s.store, connections)
	if err != nil {
		return nil, err
	}
	return &resources{namespaces: ns, byGroup: map[string]map[string]rest.Storage{
		corev1.GroupName: merge(ns.Map(), nodes.Map(), pods.Map(), configmaps, secrets,
			map[string]rest.Storage{"events": events}),
		eventsv1.GroupName:         {"events": events},
		coordinationv1.GroupName:   leases,
		authenticationv1.GroupName: review.NewAuthentication(tokens),
		authorizationv1.GroupName:  review.NewAuthorization(authz),
	}}, nil
}

// groups are the API groups as the library installs them: the one without a name, and the others.
func (r *resources) groups(set *scheme.Set) (core *genericapiserver.APIGroupInfo, others []*genericapiserver.APIGroupInfo) {
	for group, storages := range r.byGroup {
		info := genericapiserver.NewDefaultAPIGroupInfo(group, set.Scheme, set.ParameterCodec, set.Codecs)
		info.VersionedResourcesStorageMap["v1"] = storages
		if group == corev1.GroupName {
			core = &info
		} else {
			others = append(others, &info)
		}
	}
	return core, others
}

func merge(maps ...map[string]rest.Storage) map[string]rest.Storage {
	all := map[string]rest.Storage{}
	for _, m := range maps {
		for path, storage := range m {
			all[path] = storage
		}
	}
	return all
}
