package bootstrap

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"monopod.dev/monopod/internal/apiserver/pki"
)

// legacyUnknownSigner is the signer whose name certificates.k8s.io/v1 no longer has.
const legacyUnknownSigner = "kubernetes.io/legacy-unknown"

// reviews are the questions that whoever serves an API of their own asks.
func reviews() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{on("create", authenticated, "tokenreviews"), on("create", authorized, "subjectaccessreviews")}
}

// system are the roles of a cluster's own parts.
func (p *Policy) system() {
	p.clusterRole("system:monitoring", nil,
		at("/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*"), on("get", core, "nodes/metrics"))
	p.bindCluster("system:monitoring", group(user.MonitoringGroup))
	p.clusterRole("system:auth-delegator", nil, reviews()...)

	p.nodes()
	p.scheduler()

	p.clusterRole("system:kube-controller-manager", nil, append(reviews(),
		tell(),
		on("create", coordination, "leases"), named("get update", coordination, "leases", "kube-controller-manager"),
		on("create", core, "secrets serviceaccounts"), on("delete", core, "secrets"),
		on("get", core, "namespaces secrets serviceaccounts configmaps"), on("update", core, "secrets serviceaccounts"),
		on("list watch", everyGroup, "*"), // informers
		on("create", core, "serviceaccounts/token"),
	)...)
	p.bindCluster("system:kube-controller-manager", userNamed(user.KubeControllerManager))

	// Pods are to see what they may trust, also those that ask by themselves.
	p.clusterRole("system:cluster-trust-bundle-discovery", nil, on(read, certificates, "clustertrustbundles"))
	p.bindCluster("system:cluster-trust-bundle-discovery", group(serviceaccount.AllServiceAccountsGroup))

	p.clusterRole("system:kube-aggregator", nil, on(read, core, "services endpoints"))
	p.clusterRole("system:kube-dns", nil, on("list watch", core, "endpoints services"))
	p.bindCluster("system:kube-dns", account("kube-dns"))
}

// nodes are the roles of agents of nodes and of what runs beside them.
func (p *Policy) nodes() {
	// The authorizer of nodes narrows this to a node's own objects, so the role is bound to nobody. The binding is there for tools that look for it.
	p.clusterRole("system:node", nil,
		on("create", authenticated, "tokenreviews"), on("create", authorized, "subjectaccessreviews localsubjectaccessreviews"),
		on(read, core, "services"),
		on("create get list watch", core, "nodes"), on("update patch", core, "nodes/status"), on("update patch", core, "nodes"),
		tell(),
		on(read, core, "pods"), on("create delete", core, "pods"), on("update patch", core, "pods/status"), on("create", core, "pods/eviction"),
		on(read, core, "secrets configmaps"), on("get", core, "persistentvolumeclaims persistentvolumes"), on("get", core, "endpoints"),
		on("create get list watch", certificates, "certificatesigningrequests"),
		on(read, certificates, "clustertrustbundles"), on("get list watch create", certificates, "podcertificaterequests"),
		on("get create update patch delete", coordination, "leases"),
		on("get", storage, "volumeattachments"), on("create", core, "serviceaccounts/token"), on("get", core, "serviceaccounts"),
		on("get update patch", core, "persistentvolumeclaims/status"),
		on(read, storage, "csidrivers"), on("get create update patch delete", storage, "csinodes"),
		on(read, "node.k8s.io", "runtimeclasses"),
		on("get", "resource.k8s.io", "resourceclaims"), on("deletecollection", "resource.k8s.io", "resourceslices"),
	)
	p.bindCluster("system:node")
	p.clusterRole("system:node-bootstrapper", nil, on("create get list watch", certificates, "certificatesigningrequests"))
	p.clusterRole("system:node-problem-detector", nil, on("get", core, "nodes"), on("patch", core, "nodes/status"), tell())
	p.clusterRole("system:node-proxier", nil,
		on("list watch", core, "services endpoints"), on(read, core, "nodes"), tell(),
		on("list watch", "networking.k8s.io", "servicecidrs"), on("list watch", discovery, "endpointslices"))
	p.bindCluster("system:node-proxier", userNamed(user.KubeProxy))
	p.clusterRole("system:kubelet-api-admin", nil,
		on(read, core, "nodes"), on("proxy", core, "nodes"),
		on("*", core, "nodes/proxy nodes/metrics nodes/stats nodes/log"), on("*", core, "nodes/pods nodes/healthz nodes/configz"))

	const requests = "system:certificates.k8s.io:certificatesigningrequests:"
	p.clusterRole(requests+"nodeclient", nil, on("create", certificates, "certificatesigningrequests/nodeclient"))
	p.clusterRole(requests+"selfnodeclient", nil, on("create", certificates, "certificatesigningrequests/selfnodeclient"))
	for name, signer := range map[string]string{
		"legacy-unknown":                legacyUnknownSigner,
		"kubelet-serving":               certificatesv1.KubeletServingSignerName,
		"kube-apiserver-client":         certificatesv1.KubeAPIServerClientSignerName,
		"kube-apiserver-client-kubelet": certificatesv1.KubeAPIServerClientKubeletSignerName,
	} {
		p.clusterRole("system:certificates.k8s.io:"+name+"-approver", nil, named("approve", certificates, "signers", signer))
	}
}

// scheduler are the roles of who gives pods a node: upstream's scheduler needs all of it, ours some.
func (p *Policy) scheduler() {
	p.clusterRole("system:kube-scheduler", nil, append(reviews(),
		tell(),
		on("create", coordination, "leases"), named("get update list watch", coordination, "leases", "kube-scheduler"),
		on(readWrite, coordination, "leasecandidates"),
		on(read, core, "nodes namespaces"), on("get list watch delete", core, "pods"),
		on("create", core, "pods/binding bindings"), on("patch update", core, "pods/status"),
		on(read, core, "services replicationcontrollers"), on(read, "apps", "replicasets statefulsets"), on(read, "policy", "poddisruptionbudgets"),
		on(read, core, "persistentvolumeclaims persistentvolumes"),
		on(read, storage, "csinodes volumeattachments csidrivers csistoragecapacities"),
		on(read, "resource.k8s.io", "deviceclasses resourceslices"), on(readUpdate, "resource.k8s.io", "resourceclaims resourceclaims/status"),
		on("update", core, "pods/finalizers"),
	)...)
	p.bindCluster("system:kube-scheduler", userNamed(user.KubeScheduler))
	p.clusterRole("system:volume-scheduler", nil,
		on(readUpdate, core, "persistentvolumes"), on(read, storage, "storageclasses"), on(readUpdate, core, "persistentvolumeclaims"))
	p.bindCluster("system:volume-scheduler", userNamed(user.KubeScheduler))
	// It is for who makes volumes from outside; an installation binds it.
	p.clusterRole("system:persistent-volume-provisioner", nil,
		on("get list watch create delete", core, "persistentvolumes"), on("get list watch update", core, "persistentvolumeclaims"), on(read, storage, "storageclasses"),
		on("watch", core, "events"), tell())
}

const controller = "system:controller:"

// controllers are the roles of controllers, each bound to the service account of its name.
func (p *Policy) controllers() {
	for _, some := range []map[string][]rbacv1.PolicyRule{controllerRules(), serviceControllerRules(), volumeControllerRules()} {
		for name, rules := range some {
			p.clusterRole(controller+name, nil, rules...)
			p.bindCluster(controller+name, account(name))
		}
	}
}

// serviceControllerRules are the rights of those that look after services.
func serviceControllerRules() map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{
		"endpoint-controller": {
			on(read, core, "services pods"), on("get list watch create update delete", core, "endpoints"), on("create", core, "endpoints/restricted"), tell(),
		},
		"endpointslice-controller": {
			on(read, core, "services pods nodes"), on("update", core, "services/finalizers"),
			on("get list watch create update delete", discovery, "endpointslices"), tell(),
		},
		"endpointslicemirroring-controller": {
			on(read, core, "services endpoints"), on("update", core, "services/finalizers endpoints/finalizers"),
			on("get list watch create update delete", discovery, "endpointslices"), tell(),
		},
		"service-cidrs-controller": {
			on(readUpdate, "networking.k8s.io", "servicecidrs"), on("patch update", "networking.k8s.io", "servicecidrs/finalizers servicecidrs/status"),
			on(read, "networking.k8s.io", "ipaddresses"), tell(),
		},
	}
}

// volumeControllerRules are the rights of those that are about volumes.
func volumeControllerRules() map[string][]rbacv1.PolicyRule {
	const claims, volumes = "persistentvolumeclaims", "persistentvolumes"
	return map[string][]rbacv1.PolicyRule{
		"attachdetach-controller": {
			on("list watch", core, volumes+" "+claims), on(read, core, "nodes"), on("patch update", core, "nodes/status"), on("list watch", core, "pods"), tell(),
			on("get create delete list watch", storage, "volumeattachments"), on(read, storage, "csidrivers csinodes"),
		},
		"ephemeral-volume-controller": {
			on(read, core, "pods"), on("update", core, "pods/finalizers"), on("get list watch create", core, claims), tell(),
		},
		"expand-controller": {on(readUpdate, core, volumes), on("update patch", core, claims+"/status"), on(read, core, claims), tell()},
		"persistent-volume-binder": {
			on("get list watch update create delete", core, volumes), on("get list watch update", core, claims), on("update", core, volumes+"/status "+claims+"/status"),
			on("list watch get create delete", core, "pods"), on(read, storage, "storageclasses"), on("list watch", core, "nodes"), tell(), on("watch", core, "events"),
		},
		"pv-protection-controller": {on("get list watch update", core, volumes), tell()},
		"pvc-protection-controller": {
			on("get list watch update", core, claims), on("update", core, claims+"/status"), on(read, core, "pods"), tell(),
		},
		"volumeattributesclass-protection-controller": {
			on(read, core, claims+" "+volumes), on("get list watch update", storage, "volumeattributesclasses"), tell(),
		},
	}
}

// controllerRules are the rights of all others.
func controllerRules() map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{
		"certificate-controller": {
			on("get list watch delete", certificates, "certificatesigningrequests"),
			on("update", certificates, "certificatesigningrequests/status certificatesigningrequests/approval"),
			named("approve", certificates, "signers", certificatesv1.KubeAPIServerClientKubeletSignerName),
			named("sign", certificates, "signers", legacyUnknownSigner, certificatesv1.KubeAPIServerClientSignerName,
				certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName),
			on("create", authorized, "subjectaccessreviews"), tell(),
		},
		"kube-apiserver-serving-clustertrustbundle-publisher": {
			named("attest", certificates, "signers", "kubernetes.io/kube-apiserver-serving"), on("create update delete list watch", certificates, "clustertrustbundles"), tell(),
		},
		"podcertificaterequestcleaner": {on("get list watch delete", certificates, "podcertificaterequests")},
		// It writes roles with more rights than its own.
		"clusterrole-aggregation-controller": {on("escalate get list watch update patch", rbacv1.GroupName, "clusterroles")},
		"daemon-set-controller": {
			on("get list watch", "apps", "daemonsets"), on("update", "apps", "daemonsets/status daemonsets/finalizers"), on("list watch", core, "nodes"),
			on("list watch create delete patch", core, "pods"), on("create", core, "pods/binding"),
			on("get list watch create update delete patch", "apps", "controllerrevisions"), tell(),
		},
		"cronjob-controller": {
			on("get list watch update", "batch", "cronjobs"), on("get list watch create update delete patch", "batch", "jobs"),
			on("update", "batch", "cronjobs/status cronjobs/finalizers"), on("list watch delete", core, "pods"), tell(),
		},
		"deployment-controller": {
			on("get list watch update", "apps", "deployments"), on("update", "apps", "deployments/status deployments/finalizers"),
			on("get list watch create update patch delete", "apps", "replicasets"), on("get list watch update", core, "pods"), tell(),
		},
		"disruption-controller": {
			on(read, "apps", "deployments replicasets statefulsets"), on(read, core, "replicationcontrollers"), on(read, "policy", "poddisruptionbudgets"),
			on("update", "policy", "poddisruptionbudgets/status"), on("patch update", core, "pods/status"), on("get", everyGroup, "*/scale"), tell(),
		},
		"generic-garbage-collector": {on("get list watch patch update delete", everyGroup, "*"), tell()},
		"job-controller": {
			on("get list watch update patch", "batch", "jobs"), on("update", "batch", "jobs/status jobs/finalizers"),
			on("list watch create delete patch", core, "pods"), tell(),
		},
		"horizontal-pod-autoscaler": {
			on(read, "autoscaling", "horizontalpodautoscalers"), on("update", "autoscaling", "horizontalpodautoscalers/status"), on("get update", everyGroup, "*/scale"),
			on("list watch", core, "pods"), on("list watch", "metrics.k8s.io", "pods"), on(read, "custom.metrics.k8s.io", "*"), on(read, "external.metrics.k8s.io", "*"), tell(),
		},
		"namespace-controller": {
			on("get list watch delete", core, "namespaces"), on("update", core, "namespaces/finalize namespaces/status"),
			on("get list watch delete deletecollection", everyGroup, "*"),
		},
		"node-controller": {
			on("get list watch update delete patch", core, "nodes"), on("patch update", core, "nodes/status pods/status"),
			on("list watch get delete", core, "pods"), on(read, coordination, "leases"), tell(),
		},
		"pod-garbage-collector": {on("list watch delete", core, "pods"), on(read, core, "nodes"), on("patch", core, "pods/status")},
		"replicaset-controller": {
			on("get list watch update", "apps", "replicasets"), on("update", "apps", "replicasets/status replicasets/finalizers"),
			on("list watch create delete patch", core, "pods"), tell(),
		},
		"replication-controller": {
			on("get list watch update", core, "replicationcontrollers"), on("update", core, "replicationcontrollers/status replicationcontrollers/finalizers"),
			on("list watch create delete patch", core, "pods"), tell(),
		},
		"statefulset-controller": {
			on("get list watch", "apps", "statefulsets"), on("update", "apps", "statefulsets/status statefulsets/finalizers"),
			on("get list watch create update delete patch", core, "pods"), on("update", core, "pods/finalizers"),
			on("get list watch create update delete patch", "apps", "controllerrevisions"),
			on("get list watch create update delete", core, "persistentvolumeclaims"), tell(),
		},
		"root-ca-cert-publisher":        {on("create update", core, "configmaps"), tell()},
		"service-account-controller":    {on("create", core, "serviceaccounts"), tell()},
		"ttl-after-finished-controller": {on("get list watch delete", "batch", "jobs"), tell()},
	}
}

// namespaced are the roles in the system's own namespaces.
func (p *Policy) namespaced() {
	const kubeSystem, kubePublic = metav1.NamespaceSystem, metav1.NamespacePublic
	const authentication = "extension-apiserver-authentication"
	p.role(kubeSystem, authentication+"-reader", named(read, core, "configmaps", authentication))
	p.bind(kubeSystem, "system::"+authentication+"-reader", authentication+"-reader", userNamed(user.KubeControllerManager), userNamed(user.KubeScheduler))

	for name, accounts := range map[string][]rbacv1.Subject{
		"kube-controller-manager": {userNamed(user.KubeControllerManager), account("kube-controller-manager"), account("leader-election-controller")},
		"kube-scheduler":          {userNamed(user.KubeScheduler), account("kube-scheduler")},
		"monopod-controllers":     {userNamed(pki.ControllersUser)},
	} {
		lock := "system::leader-locking-" + name
		p.role(kubeSystem, lock, on("get watch list create update", coordination, "leases leasecandidates"))
		p.bind(kubeSystem, lock, lock, accounts...)
	}

	const signer, cleaner = controller + "bootstrap-signer", controller + "token-cleaner"
	p.role(kubeSystem, signer, on(read, core, "secrets"))
	p.bind(kubeSystem, signer, signer, account("bootstrap-signer"))
	p.role(kubePublic, signer, on(read, core, "configmaps"), named("update", core, "configmaps", "cluster-info"), tell())
	p.bind(kubePublic, signer, signer, account("bootstrap-signer"))
	p.role(kubeSystem, cleaner, on("get list watch delete", core, "secrets"), tell())
	p.bind(kubeSystem, cleaner, cleaner, account("token-cleaner"))
}
