// Package service serves the resource services of core/v1 and its subresources status and proxy: services as data. Their addresses and node ports are given out here
// (docs/adr/0027-services-are-data.md); what sends packets on is no part of it.
package service

import (
	"context"
	"log/slog"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/keymutex"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Config says what services get.
type Config struct {
	Ranges Ranges
	// FirstNodePort and LastNodePort are the range of their node ports.
	FirstNodePort, LastNodePort uint16
	// Storages are those of the objects by which addresses are given out.
	Storages Storages
	// Shared: other processes give out addresses of the same store at the same time.
	Shared bool
	// Lock has this process change services only while it has the lock of all who give out the same node ports; nil: nobody else does.
	Lock func(context.Context) (unlock func(), err error)
	Log  *slog.Logger
}

// Resource is the resource services, without what gives them addresses and node ports: Given has that.
func Resource() resource.Of[*corev1.Service, *corev1.ServiceList] {
	return resource.Of[*corev1.Service, *corev1.ServiceList]{
		Plural:         "services",
		Short:          []string{"svc"},
		Categories:     []string{"all"},
		Namespaced:     true,
		ReadBy:         resource.Viewer,
		WrittenBy:      resource.Editor,
		CreateOnUpdate: true,
		Honours:        table(),
		Default:        setDefaults,
		// A service's name is the first label of names in DNS.
		Names:  apivalidation.NameIsDNS1035Label,
		Create: validate,
		Update: validateUpdate,
		Warn:   warnings,
		PrepareUpdate: func(s, _ *corev1.Service) {
			if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
				s.Status.LoadBalancer = corev1.LoadBalancerStatus{} // it has none any more
			}
		},
		Status: &resource.Status[*corev1.Service]{Update: validateStatus},
		Scheme: AddOptions,
		Fields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		Columns: columns(),
	}
}

// Given is the resource services, whose addresses and node ports are given out. It is opened once, before anything is asked of a.
func Given(a *Allocations) resource.Resource {
	services := Resource()
	services.Store = func(store *genericregistry.Store) {
		store.ReturnDeletedObject = true // as upstream, for what follows its deletion
		store.BeginCreate, store.BeginUpdate, store.AfterDelete = a.beginCreate, a.beginUpdate, a.afterDelete
	}
	services.REST = func(store *genericregistry.Store) rest.Storage {
		a.services = store
		return &REST{Store: store, given: a, changes: keymutex.NewHashed(0)}
	}
	return services
}

// table: all of a service is data here, for whoever sends packets.
func table() apifields.Table {
	return apifields.Table{
		reflect.TypeFor[corev1.Service](): apifields.All("Spec").And(apifields.Left, "Status"),
		reflect.TypeFor[corev1.ServiceSpec](): apifields.All("Ports", "Selector", "ClusterIP", "ClusterIPs", "Type", "ExternalIPs", "SessionAffinity", "LoadBalancerIP",
			"LoadBalancerSourceRanges", "ExternalName", "ExternalTrafficPolicy", "HealthCheckNodePort", "PublishNotReadyAddresses", "SessionAffinityConfig", "IPFamilies",
			"IPFamilyPolicy", "AllocateLoadBalancerNodePorts", "LoadBalancerClass", "InternalTrafficPolicy", "TrafficDistribution"),
		reflect.TypeFor[corev1.ServicePort]():           apifields.All("Name", "Protocol", "AppProtocol", "Port", "TargetPort", "NodePort"),
		reflect.TypeFor[corev1.SessionAffinityConfig](): apifields.All("ClientIP"),
		reflect.TypeFor[corev1.ClientIPConfig]():        apifields.All("TimeoutSeconds"),
	}
}
