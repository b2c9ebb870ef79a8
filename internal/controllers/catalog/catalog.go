// Package catalog says which controllers there are, and what others need to know of each: its name, what it may do, when it begins.
//
// It is a table, and nothing else, so that those who may not know the controllers themselves can read it: the configuration, which takes their names; the
// API server, which gives them their rights; pages and help, which list them. What makes a controller of a row is package controllers' (its factories), and a
// test holds that each row has such a factory.
package catalog

import "slices"

// The names of the controllers.
const (
	// Binder gives pods a node.
	Binder = "binder"
	// ServiceAccount keeps an account in every namespace.
	ServiceAccount = "service-account"
	// AccountTokens fills secrets that are there for the token of an account.
	AccountTokens = "serviceaccount-token"
	// RootCA keeps the authority's certificate in every namespace.
	RootCA = "root-ca"
	// Namespace empties namespaces that are deleted.
	Namespace = "namespace"
	// GarbageCollector deletes objects whose owners are gone.
	GarbageCollector = "garbage-collector"
	// Certificates approves and signs certificate signing requests of the kubelet's signers.
	Certificates = "certificates"
	// PodCertificates issues certificates to pods, as the signer monopod.dev/pod-identity, and deletes requests for such that are of no use any more.
	PodCertificates = "pod-certificates"
	// TrustBundles publishes the authority of the API server's certificate as a trust bundle.
	TrustBundles = "kube-apiserver-serving-clustertrustbundle-publisher"
	// Aggregation keeps cluster roles complete that are made of others.
	Aggregation = "clusterrole-aggregation"
	// NodeLifecycle says of nodes whose agent is silent that nothing is known of them, and taints nodes by their conditions.
	NodeLifecycle = "node-lifecycle"
	// TaintEviction deletes pods from nodes with taints that they do not tolerate.
	TaintEviction = "taint-eviction"
	// PodGC removes pods that no agent can end.
	PodGC = "pod-garbage-collector"
	// Endpoints says of services which pods they lead to.
	Endpoints = "endpoints"
	// Deployment moves pods from one template to the next.
	Deployment = "deployment"
	// ReplicaSet and Replication keep as many pods as are asked for.
	ReplicaSet  = "replicaset"
	Replication = "replication-controller"
	// StatefulSet keeps pods whose names stay.
	StatefulSet = "statefulset"
	// DaemonSet keeps one pod on each node.
	DaemonSet = "daemonset"
	// Job runs the pods of jobs.
	Job = "job"
	// TTLAfterFinished deletes jobs that have finished.
	TTLAfterFinished = "ttl-after-finished"
	// CronJob makes jobs at their times.
	CronJob = "cronjob"
	// Disruption says how many pods of a budget may be evicted.
	Disruption = "disruption"
	// Autoscaler changes how many pods there are by what they use.
	Autoscaler = "horizontalpodautoscaler"
	// ServiceLB gives services of the type LoadBalancer the addresses of the nodes.
	ServiceLB = "service-lb"
	// ServiceCIDR says which ranges of services' addresses can be used, and keeps those that are deleted while they are needed.
	ServiceCIDR = "service-cidr"
	// VolumeBinding gives claims their volumes, and says what becomes of volumes whose claim is gone.
	VolumeBinding = "persistentvolume-binder"
	// ClaimProtection keeps claims while pods have them, and VolumeProtection volumes while they are bound.
	ClaimProtection  = "pvc-protection"
	VolumeProtection = "pv-protection"
	// EphemeralVolume makes the claims that pods bring along.
	EphemeralVolume = "ephemeral-volume"
	// AttributesProtection keeps classes of volumes' attributes while somebody names them.
	AttributesProtection = "volumeattributesclass-protection"
	// IngressClass tells of ingresses that no controller can take.
	IngressClass = "ingress-class"
)

// Controller is a row: a controller without its code.
type Controller struct {
	// Name is what it is chosen by (--controllers), and what its log lines bear.
	Name string
	// AtOnce: pods wait for it from the first moment on, and it begins with the role. The others begin when the node has started.
	AtOnce bool
	// Roles are the cluster roles of those parts of Kubernetes in whose place it stands, which every cluster has.
	Roles []string
	// Rights are what it needs besides. All controllers have one credential and share what they watch: what the role of another one lets it do is not said again.
	Rights []Right
}

// Right lets a controller do something with all objects of some resources. Each word is one: "get list".
type Right struct{ Verbs, Group, Resources string }

// All are the controllers, in the order in which people are told of them.
func All() []Controller {
	const role = "system:controller:"
	// Whether a pod was made whose making was not answered is asked for (package owned).
	made := Right{"get", "", "pods"}
	return []Controller{
		{Name: Binder, AtOnce: true, Roles: []string{"system:kube-scheduler", "system:volume-scheduler"}},
		{Name: ServiceAccount, AtOnce: true, Roles: []string{role + "service-account-controller"}, Rights: []Right{{"list watch", "", "serviceaccounts"}}},
		{Name: AccountTokens, Rights: []Right{{"get list watch update delete", "", "secrets"}, {"list watch", "", "serviceaccounts"}, {"get update", "", "serviceaccounts"}}},
		// One that cannot be changed is replaced.
		{Name: RootCA, AtOnce: true, Roles: []string{role + "root-ca-cert-publisher"}, Rights: []Right{{"list watch delete", "", "configmaps"}}},
		{Name: Namespace, Roles: []string{role + "namespace-controller"}},
		{Name: GarbageCollector, Roles: []string{role + "generic-garbage-collector"}},
		{Name: Certificates, Roles: []string{role + "certificate-controller"}},
		// What it may sign is in package bootstrap.
		{Name: PodCertificates, Roles: []string{role + "podcertificaterequestcleaner"}, Rights: []Right{
			{"update", "certificates.k8s.io", "podcertificaterequests/status"},
			{"create update delete list watch", "certificates.k8s.io", "clustertrustbundles"}, {"get create update", "", "secrets"}, made,
		}},
		{Name: TrustBundles, Roles: []string{role + "kube-apiserver-serving-clustertrustbundle-publisher"}},
		{Name: Aggregation, Roles: []string{role + "clusterrole-aggregation-controller"}},
		{Name: NodeLifecycle, Roles: []string{role + "node-controller"}},
		{Name: TaintEviction, Rights: []Right{{"delete", "", "pods"}}},
		{Name: PodGC, Roles: []string{role + "pod-garbage-collector"}},
		{Name: Endpoints, Roles: []string{role + "endpoint-controller", role + "endpointslice-controller", role + "endpointslicemirroring-controller"}},
		{Name: Deployment, Roles: []string{role + "deployment-controller"}},
		{Name: ReplicaSet, Roles: []string{role + "replicaset-controller"}, Rights: []Right{made}},
		{Name: Replication, Roles: []string{role + "replication-controller"}, Rights: []Right{made}},
		{Name: StatefulSet, Roles: []string{role + "statefulset-controller"}},
		{Name: DaemonSet, Roles: []string{role + "daemon-set-controller"}, Rights: []Right{made}},
		{Name: Job, Roles: []string{role + "job-controller"}, Rights: []Right{made}},
		{Name: TTLAfterFinished, Roles: []string{role + "ttl-after-finished-controller"}},
		{Name: CronJob, Roles: []string{role + "cronjob-controller"}},
		{Name: Disruption, Roles: []string{role + "disruption-controller"}},
		{Name: Autoscaler, Roles: []string{role + "horizontal-pod-autoscaler"}},
		{Name: ServiceLB, Rights: []Right{{"update", "", "services/status"}}},
		{Name: ServiceCIDR, Roles: []string{role + "service-cidrs-controller"}},
		{Name: VolumeBinding, Roles: []string{role + "persistent-volume-binder"}},
		{Name: ClaimProtection, Roles: []string{role + "pvc-protection-controller"}},
		{Name: VolumeProtection, Roles: []string{role + "pv-protection-controller"}},
		{Name: EphemeralVolume, Roles: []string{role + "ephemeral-volume-controller"}},
		{Name: AttributesProtection, Roles: []string{role + "volumeattributesclass-protection-controller"}},
		{Name: IngressClass, Rights: []Right{{"list watch", "networking.k8s.io", "ingresses ingressclasses"}}},
	}
}

// Names are the names of all controllers.
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return names
}

// Chosen says whether a choice has a controller in it: by its name, or by "*" without "-NAME". The first that names it counts, as with upstream's
// --controllers.
func Chosen(name string, choice []string) bool {
	for _, c := range choice {
		switch c {
		case name:
			return true
		case "-" + name:
			return false
		}
	}
	return slices.Contains(choice, "*")
}
