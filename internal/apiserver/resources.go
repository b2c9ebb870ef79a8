package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"monopod.dev/monopod/internal/apiserver/nodeusage"
	"monopod.dev/monopod/internal/apiserver/reach"
	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
	"monopod.dev/monopod/internal/apiserver/registry/configmap"
	"monopod.dev/monopod/internal/apiserver/registry/controllerrevision"
	"monopod.dev/monopod/internal/apiserver/registry/cronjob"
	"monopod.dev/monopod/internal/apiserver/registry/daemonset"
	"monopod.dev/monopod/internal/apiserver/registry/deployment"
	"monopod.dev/monopod/internal/apiserver/registry/endpoints"
	"monopod.dev/monopod/internal/apiserver/registry/endpointslice"
	"monopod.dev/monopod/internal/apiserver/registry/event"
	"monopod.dev/monopod/internal/apiserver/registry/horizontalpodautoscaler"
	"monopod.dev/monopod/internal/apiserver/registry/ingress"
	"monopod.dev/monopod/internal/apiserver/registry/ingressclass"
	"monopod.dev/monopod/internal/apiserver/registry/ipaddress"
	"monopod.dev/monopod/internal/apiserver/registry/job"
	"monopod.dev/monopod/internal/apiserver/registry/lease"
	"monopod.dev/monopod/internal/apiserver/registry/limitrange"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/networkpolicy"
	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/persistentvolume"
	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/registry/poddisruptionbudget"
	"monopod.dev/monopod/internal/apiserver/registry/podtemplate"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
	"monopod.dev/monopod/internal/apiserver/registry/rbac"
	"monopod.dev/monopod/internal/apiserver/registry/replicaset"
	"monopod.dev/monopod/internal/apiserver/registry/replicationcontroller"
	"monopod.dev/monopod/internal/apiserver/registry/resourcemetrics"
	"monopod.dev/monopod/internal/apiserver/registry/review"
	"monopod.dev/monopod/internal/apiserver/registry/runtimeclass"
	"monopod.dev/monopod/internal/apiserver/registry/secret"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/serviceaccount"
	"monopod.dev/monopod/internal/apiserver/registry/servicecidr"
	"monopod.dev/monopod/internal/apiserver/registry/statefulset"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/scheme"
	"monopod.dev/monopod/internal/apiserver/store"
)

// list is all that is served.
func (s *Server) list(bearers authenticator.Request, authz review.Authorizer) ([]resource.Resource, error) {
	agents, err := reach.New(reach.Config{
		Nodes:          storageOf{s, corev1.SchemeGroupVersion.WithResource("nodes")},
		CA:             s.pki.CA,
		ClientCertFile: s.pki.APIServerAgent.CertFile, ClientKeyFile: s.pki.APIServerAgent.KeyFile,
	})
	if err != nil {
		return nil, err
	}
	all := append(declared(), node.Resource(agents, authz), service.Resource(s.services, backends{reader{s}, agents}), pod.Resource(pod.Config{
		Agents: agents, Authorizer: authz, Budgets: budgets{reader{s}}, Timeline: s.cfg.Timeline,
	}),
		serviceaccount.Resource(serviceaccount.TokenConfig{
			Issuer: s.tokens, Audiences: s.tokens.Audiences(), MaxLife: s.cfg.MaxTokenLife, Bound: reader{s},
		}))
	all = append(all, rbac.Resources(rbac.Guard{Authorizer: authz, Policy: s.policy})...)
	all = append(all, persistentvolume.Resources()...)
	usage := nodeusage.New(nodeusage.Config{Fetch: agents.ResourceMetrics, Log: s.cfg.Log})
	all = append(all, resourcemetrics.Resources(reader{s}, usage)...)
	all = append(all, review.Authentication(bearers, s.tokens.Audiences())...)
	return append(all, review.Authorization(authz)...), nil
}

// declared are the resources that are nothing but a declaration.
func declared() []resource.Resource {
	return []resource.Resource{
		certificatesigningrequest.Resource(),
		configmap.Resource(),
		controllerrevision.Resource(),
		cronjob.Resource(),
		daemonset.Resource(),
		deployment.Resource(),
		endpoints.Resource(),
		endpointslice.Resource(),
		event.Resource(),
		horizontalpodautoscaler.Resource(),
		ingress.Resource(),
		ingressclass.Resource(),
		ipaddress.Resource(),
		job.Resource(),
		lease.Resource(),
		limitrange.Resource(),
		namespace.Resource(),
		networkpolicy.Resource(),
		poddisruptionbudget.Resource(),
		podtemplate.Resource(),
		priorityclass.Resource(),
		replicaset.Resource(),
		replicationcontroller.Resource(),
		runtimeclass.Resource(),
		secret.Resource(),
		servicecidr.Resource(),
		statefulset.Resource(),
	}
}

// backends are what is behind services, and the road there.
type backends struct {
	reader
	*reach.Agents
}

// open makes the scheme, the store and the storages of all resources.
func (s *Server) open(resources []resource.Resource) (*scheme.Set, error) {
	config := store.Config{
		Client: s.etcd.Client(), Remote: s.cfg.shared(), Transformer: s.encryption.Transformer, Versions: map[schema.GroupResource]schema.GroupVersion{},
	}
	var hooks []scheme.Hook
	for _, r := range resources {
		hooks = append(hooks, r.AddToScheme)
		s.rights = append(s.rights, r.Rights()...)
		stored := r.Served()[0]
		config.Versions[stored.GroupResource()] = stored.GroupVersion()
		if r.Uncached() {
			config.Uncached = append(config.Uncached, stored.GroupResource())
		}
	}
	set, err := scheme.New(hooks...)
	if err != nil {
		return nil, err
	}
	config.Codecs = set.Codecs
	if err := store.SetFeatures(); err != nil {
		return nil, fmt.Errorf("choose the library's features: %w", err)
	}
	s.store = store.New(config)
	if s.storages, err = resource.Open(resources, s.store); err != nil {
		return nil, err
	}
	networking := s.storages[networkingv1.SchemeGroupVersion]
	s.services.Use(service.Storages{
		Addresses: networking["ipaddresses"].(service.Storage), Ranges: networking["servicecidrs"].(service.Storage),
		Status: networking["servicecidrs/status"].(rest.Updater),
	})
	return set, nil
}

func (s *Server) namespaces() *namespace.REST {
	return s.storages[corev1.SchemeGroupVersion]["namespaces"].(*namespace.REST)
}

// groups are the API groups as the library installs them: the one without a name, and the others.
func (s *Server) groups(set *scheme.Set) (core *genericapiserver.APIGroupInfo, others []*genericapiserver.APIGroupInfo) {
	infos := map[string]*genericapiserver.APIGroupInfo{}
	for gv, storages := range s.storages {
		info := infos[gv.Group]
		if info == nil {
			made := genericapiserver.NewDefaultAPIGroupInfo(gv.Group, set.Scheme, set.ParameterCodec, set.Codecs)
			info = &made
			infos[gv.Group] = info
			if gv.Group != corev1.GroupName {
				others = append(others, info)
			}
		}
		info.VersionedResourcesStorageMap[gv.Version] = storages
	}
	return infos[corev1.GroupName], others
}

// storageOf reads objects of a resource whose storage is opened later than whoever reads is made.
type storageOf struct {
	server   *Server
	resource schema.GroupVersionResource
}

// Get implements rest.Getter.
func (s storageOf) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	getter, ok := s.server.storages[s.resource.GroupVersion()][s.resource.Resource].(rest.Getter)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s cannot be read", s.resource.Resource))
	}
	return getter.Get(ctx, name, options)
}
