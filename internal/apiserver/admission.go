package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/admission"
	"monopod.dev/monopod/internal/apiserver/admission/noderestriction"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// admission is the list of what a change of any object passes, in this order, beside the rules of its own resource. Each link of the chain of servers has it.
func (r *resources) admission() ([]genericadmission.Interface, error) {
	var system []string
	for _, c := range priorityclass.System() {
		system = append(system, c.Name)
	}
	namespaces, err := resource.Find[*namespace.REST](r.storages, corev1.SchemeGroupVersion, "namespaces")
	if err != nil {
		return nil, err
	}
	priorities, err := resource.Find[admission.Reader](r.storages, schedulingv1.SchemeGroupVersion, "priorityclasses")
	if err != nil {
		return nil, err
	}
	runtimes, err := resource.Find[rest.Getter](r.storages, nodev1.SchemeGroupVersion, "runtimeclasses")
	if err != nil {
		return nil, err
	}
	ingresses, err := resource.Find[admission.Reader](r.storages, networkingv1.SchemeGroupVersion, "ingressclasses")
	if err != nil {
		return nil, err
	}
	classes, err := resource.Find[admission.Reader](r.storages, storagev1.SchemeGroupVersion, "storageclasses")
	if err != nil {
		return nil, err
	}
	return []genericadmission.Interface{
		admission.Namespaces{Getter: namespaces, Immortal: namespace.System()},
		admission.Priority{Classes: priorities, System: system},
		admission.RuntimeClass{Classes: runtimes},
		admission.IngressClass{Classes: ingresses},
		admission.Claims{Classes: classes, Ranges: r.objects},
		admission.InUse{},
		admission.LimitRanges{Ranges: r.objects},
		admission.ServiceAccounts{Accounts: r.objects},
		admission.DefaultTolerationSeconds{},
		noderestriction.Plugin{Objects: r.objects, Authorizer: r.authorizer},
		admission.Certificates{Authorizer: r.authorizer},
	}, nil
}
