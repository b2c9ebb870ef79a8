package controllers

import "slices"

// The names of the controllers.
const (
	Binder           = "binder"
	ServiceAccount   = "service-account"
	AccountTokens    = "serviceaccount-token"
	RootCA           = "root-ca"
	Namespace        = "namespace"
	GarbageCollector = "garbage-collector"
	Certificates     = "certificates"
	Aggregation      = "clusterrole-aggregation"
	NodeLifecycle    = "node-lifecycle"
	TaintEviction    = "taint-eviction"
	PodGC            = "pod-garbage-collector"
	Endpoints        = "endpoints"
	Deployment       = "deployment"
	ReplicaSet       = "replicaset"
	Replication      = "replication-controller"
	StatefulSet      = "statefulset"
	DaemonSet        = "daemonset"
	Job              = "job"
	TTLAfterFinished = "ttl-after-finished"
	CronJob          = "cronjob"
	Disruption       = "disruption"
	Autoscaler       = "horizontalpodautoscaler"
	ServiceLB        = "service-lb"
	ServiceCIDR      = "service-cidr"
	IngressClass     = "ingress-class"
)

// Names are the names of all controllers.
func Names() []string {
	return []string{Binder, ServiceAccount, AccountTokens, RootCA, Namespace, GarbageCollector, Certificates, Aggregation, NodeLifecycle, TaintEviction, PodGC, Endpoints,
		Deployment, ReplicaSet, Replication, StatefulSet, DaemonSet, Job, TTLAfterFinished, CronJob, Disruption, Autoscaler, ServiceLB, ServiceCIDR, IngressClass}
}

// enabled says whether a choice has a controller in it: by its name, by "*" without "-NAME". The first that names it counts, as with upstream's
// --controllers.
func enabled(name string, choice []string) bool {
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
