package apiserver

import (
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/admission"
	"monopod.dev/monopod/internal/apiserver/admission/noderestriction"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
)

// admission is what a change of any object passes, in this order, beside the rules of its own resource.
func (s *Server) admission(authorizer authorizer.UnconditionalAuthorizer) []genericadmission.Interface {
	var system []string
	for _, c := range priorityclass.System() {
		system = append(system, c.Name)
	}
	return []genericadmission.Interface{
		admission.Namespaces{Getter: s.namespaces(), Immortal: namespace.System()},
		admission.Priority{Classes: s.storages[schedulingv1.SchemeGroupVersion]["priorityclasses"].(admission.Reader), System: system},
		admission.RuntimeClass{Classes: s.storages[nodev1.SchemeGroupVersion]["runtimeclasses"].(rest.Getter)},
		admission.IngressClass{Classes: s.storages[networkingv1.SchemeGroupVersion]["ingressclasses"].(admission.Reader)},
		admission.LimitRanges{Ranges: reader{s}},
		admission.ServiceAccounts{Accounts: reader{s}},
		admission.DefaultTolerationSeconds{},
		noderestriction.Plugin{Objects: reader{s}},
		admission.Certificates{Authorizer: authorizer},
	}
}
