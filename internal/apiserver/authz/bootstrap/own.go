package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"monopod.dev/monopod/internal/apiserver/pki"
)

// own are the bindings of Monopod's own controllers, which all have one credential: the roles of those parts of Kubernetes in whose place they stand, and
// what they need besides, because they watch what upstream's leave to others.
func (p *Policy) own() {
	ours := userNamed(pki.ControllersUser)
	const prefix = "monopod:"
	bind := func(name, role string) {
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metadata("", name, nil), Subjects: []rbacv1.Subject{ours},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		})
	}
	bind(prefix+"system:kube-scheduler", "system:kube-scheduler")
	for _, name := range []string{
		"certificate-controller", "clusterrole-aggregation-controller", "cronjob-controller", "daemon-set-controller", "deployment-controller",
		"disruption-controller", "endpoint-controller", "endpointslice-controller", "endpointslicemirroring-controller", "generic-garbage-collector",
		"horizontal-pod-autoscaler", "job-controller", "namespace-controller", "node-controller", "pod-garbage-collector", "replicaset-controller",
		"replication-controller", "root-ca-cert-publisher", "service-account-controller", "service-cidrs-controller", "statefulset-controller", "ttl-after-finished-controller",
	} {
		bind(prefix+controller+name, controller+name)
	}
	const more = prefix + "controllers"
	p.clusterRole(more, nil,
		on("list watch", core, "serviceaccounts"), on("list watch delete", core, "configmaps"), // that of root-ca replaces one that cannot be changed
		on("get list watch update delete", core, "secrets"), on("get update", core, "serviceaccounts"), // serviceaccount-token
		on("delete", core, "pods"),                                        // taint-eviction
		on("get", core, "pods"),                                           // whether one was made whose making was not answered
		on("update", core, "services/status"),                             // service-lb
		on("list watch", "networking.k8s.io", "ingresses ingressclasses"), // ingress-class
	)
	bind(more, more)
}
