package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"monopod.dev/monopod/internal/apiserver/authz"
	nodeauthz "monopod.dev/monopod/internal/apiserver/authz/node"
	rbacauthz "monopod.dev/monopod/internal/apiserver/authz/rbac"
	"monopod.dev/monopod/internal/apiserver/encryption"
	"monopod.dev/monopod/internal/apiserver/nodeusage"
	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/apiserver/reach"
	"monopod.dev/monopod/internal/apiserver/registry/certificatesigningrequest"
	"monopod.dev/monopod/internal/apiserver/registry/clustertrustbundle"
	"monopod.dev/monopod/internal/apiserver/registry/configmap"
	"monopod.dev/monopod/internal/apiserver/registry/controllerrevision"
	"monopod.dev/monopod/internal/apiserver/registry/cronjob"
	"monopod.dev/monopod/internal/apiserver/registry/csidriver"
	"monopod.dev/monopod/internal/apiserver/registry/csinode"
	"monopod.dev/monopod/internal/apiserver/registry/csistoragecapacity"
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
	"monopod.dev/monopod/internal/apiserver/registry/persistentvolumeclaim"
	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/registry/podcertificaterequest"
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
	"monopod.dev/monopod/internal/apiserver/registry/storageclass"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattachment"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattributesclass"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/scheme"
	"monopod.dev/monopod/internal/apiserver/store"
	"monopod.dev/monopod/internal/apiserver/tokens"
	"monopod.dev/monopod/internal/kit/podstarts"
)

// resources are all that is served: what is stored, in storages that are open, and who decides by it.
type resources struct {
	set      *scheme.Set
	store    *store.Store
	storages resource.Storages
	// rights are what the cluster's own roles have of them.
	rights []resource.Right
	// objects reads what is stored.
	objects reader
	// services gives out addresses and node ports, tokens makes and verifies those of service accounts.
	services *service.Allocations
	tokens   *tokens.Tokens
	// bearers authenticates bearer tokens. authorizer is who decides, policy the last of those that it asks: what roles and bindings say.
	bearers    authenticator.Request
	authorizer authz.Authorizer
	policy     *rbacauthz.Policy
}

// resourcesConfig is what resources are opened with.
type resourcesConfig struct {
	Config
	Etcd       objects
	Encryption *encryption.Encryption
	PKI        *pki.PKI
	TokenKeys  *tokens.Keys
	// Ranges are those of services' addresses. ServiceLock is that of all who give out the same node ports; nil: nobody else does.
	Ranges      service.Ranges
	ServiceLock func(context.Context) (unlock func(), err error)
}

// openResources opens all resources, each after those whose storages it needs: first what is stored, then what gives things out and who decides by what is stored, then
// what leads elsewhere.
func openResources(cfg resourcesConfig) (_ *resources, err error) {
	r := &resources{storages: resource.Storages{}, policy: rbacauthz.New(cfg.Log)}
	stored := declared(r.policy, cfg.Timeline)
	if err := r.begin(cfg, append(stored, service.Resource())); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.storages.Close()
			r.store.Close()
		}
	}()
	if err := r.storages.Open(r.store, stored...); err != nil {
		return nil, err
	}
	if err := r.openServices(cfg); err != nil {
		return nil, err
	}
	if r.objects, err = newReader(r.storages); err != nil {
		return nil, err
	}
	if r.tokens, err = tokens.New(tokens.Config{Keys: cfg.TokenKeys, Issuers: cfg.TokenIssuers, Objects: r.objects}); err != nil {
		return nil, err
	}
	if r.bearers, err = bearers(r.tokens, cfg.TokenAuthFile); err != nil {
		return nil, err
	}
	r.authorizer = authz.New(nodeauthz.NewAuthorizer(r.objects, r.objects, r.objects), r.policy)
	elsewhere, err := r.elsewhere(cfg)
	if err != nil {
		return nil, err
	}
	for _, one := range elsewhere {
		r.rights = append(r.rights, one.Rights()...)
	}
	return r, r.storages.Open(r.store, elsewhere...)
}

// begin makes the scheme and the store of what is stored.
func (r *resources) begin(cfg resourcesConfig, stored []resource.Resource) (err error) {
	config := store.Config{
		Client: cfg.Etcd.Client(), Remote: cfg.shared(), Transformer: cfg.Encryption.Transformer, Versions: map[schema.GroupResource]schema.GroupVersion{},
	}
	var hooks []scheme.Hook
	for _, one := range stored {
		hooks = append(hooks, one.AddToScheme)
		r.rights = append(r.rights, one.Rights()...)
		at := one.Served()[0]
		config.Versions[at.GroupResource()] = at.GroupVersion()
		if one.Uncached() {
			config.Uncached = append(config.Uncached, at.GroupResource())
		}
	}
	if r.set, err = scheme.New(hooks...); err != nil {
		return err
	}
	config.Codecs = r.set.Codecs
	if err := store.SetFeatures(); err != nil {
		return fmt.Errorf("choose the library's features: %w", err)
	}
	r.store = store.New(config)
	return nil
}

// openServices opens the services, with what gives out their addresses.
func (r *resources) openServices(cfg resourcesConfig) (err error) {
	config := service.Config{
		Ranges: cfg.Ranges, FirstNodePort: firstNodePort, LastNodePort: lastNodePort, Shared: cfg.shared(), Lock: cfg.ServiceLock, Log: cfg.Log,
	}
	networking := networkingv1.SchemeGroupVersion
	if config.Storages.Addresses, err = resource.Find[service.Storage](r.storages, networking, "ipaddresses"); err != nil {
		return err
	}
	if config.Storages.Ranges, err = resource.Find[service.Storage](r.storages, networking, "servicecidrs"); err != nil {
		return err
	}
	if config.Storages.Status, err = resource.Find[rest.Updater](r.storages, networking, "servicecidrs/status"); err != nil {
		return err
	}
	r.services = service.NewAllocations(config)
	return r.storages.Open(r.store, service.Given(r.services))
}

// elsewhere are the resources that are not stored: subresources that lead to agents and pods, questions, measurements.
func (r *resources) elsewhere(cfg resourcesConfig) ([]resource.Resource, error) {
	agents, err := reach.New(reach.Config{
		Nodes: r.objects.nodes, CA: cfg.PKI.CA, ClientCertFile: cfg.PKI.APIServerAgent.CertFile, ClientKeyFile: cfg.PKI.APIServerAgent.KeyFile,
	})
	if err != nil {
		return nil, err
	}
	pods := pod.Config{Agents: agents, Authorizer: r.authorizer}
	if pods.Pods, err = resource.Find[*pod.REST](r.storages, corev1.SchemeGroupVersion, "pods"); err != nil {
		return nil, err
	}
	if pods.Status, err = resource.Find[*resource.PartREST](r.storages, corev1.SchemeGroupVersion, "pods/status"); err != nil {
		return nil, err
	}
	if pods.Budgets, err = newBudgets(r.storages); err != nil {
		return nil, err
	}
	services, err := resource.Find[rest.Getter](r.storages, corev1.SchemeGroupVersion, "services")
	if err != nil {
		return nil, err
	}
	all := []resource.Resource{
		node.ProxyTo(agents, r.authorizer), pod.Elsewhere(pods), service.ProxyTo(services, backends{r.objects, agents}),
		serviceaccount.Tokens(r.objects.accounts, serviceaccount.TokenConfig{
			Issuer: r.tokens, Audiences: r.tokens.Audiences(), MaxLife: cfg.MaxTokenLife, Bound: r.objects,
		}),
	}
	all = append(all, resourcemetrics.Resources(r.objects, nodeusage.New(nodeusage.Config{Fetch: agents.ResourceMetrics, Log: cfg.Log}))...)
	all = append(all, review.Authentication(group.NewAuthenticatedGroupAdder(r.bearers), r.tokens.Audiences())...)
	return append(all, review.Authorization(r.authorizer)...), nil
}

// declared are the resources that need no others: all whose objects are stored, but services.
func declared(roles *rbacauthz.Policy, timeline *podstarts.Recorder) []resource.Resource {
	all := []resource.Resource{
		certificatesigningrequest.Resource(),
		clustertrustbundle.Resource(),
		configmap.Resource(),
		controllerrevision.Resource(),
		cronjob.Resource(),
		csidriver.Resource(),
		csinode.Resource(),
		csistoragecapacity.Resource(),
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
		node.Resource(),
		persistentvolume.Resource(),
		persistentvolumeclaim.Resource(),
		pod.Resource(timeline),
		podcertificaterequest.Resource(),
		poddisruptionbudget.Resource(),
		podtemplate.Resource(),
		priorityclass.Resource(),
		replicaset.Resource(),
		replicationcontroller.Resource(),
		runtimeclass.Resource(),
		secret.Resource(),
		serviceaccount.Resource(),
		servicecidr.Resource(),
		statefulset.Resource(),
		storageclass.Resource(),
		volumeattachment.Resource(),
		volumeattributesclass.Resource(),
	}
	// Who may write roles is asked of roles alone: agents may not, and administrators may write any.
	return append(all, rbac.Resources(rbac.Guard{Authorizer: roles, Policy: roles})...)
}

// backends are what is behind services, and the road there.
type backends struct {
	reader
	*reach.Agents
}

// groups are the API groups as the library installs them: the one without a name, and the others.
func (r *resources) groups() (core *genericapiserver.APIGroupInfo, others []*genericapiserver.APIGroupInfo) {
	infos := map[string]*genericapiserver.APIGroupInfo{}
	for gv, storages := range r.storages {
		info := infos[gv.Group]
		if info == nil {
			made := genericapiserver.NewDefaultAPIGroupInfo(gv.Group, r.set.Scheme, r.set.ParameterCodec, r.set.Codecs)
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
