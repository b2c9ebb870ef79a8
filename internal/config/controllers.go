package config

import (
	"slices"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// Controllers are the names of the controllers that can be chosen.
func Controllers() []string {
	return []string{
		"binder", "service-account", "serviceaccount-token", "root-ca", "namespace", "garbage-collector", "certificates", "clusterrole-aggregation", "node-lifecycle", "taint-eviction", "pod-garbage-collector", "endpoints",
		"deployment", "replicaset", "replication-controller", "statefulset", "daemonset", "job", "ttl-after-finished", "cronjob", "disruption", "horizontalpodautoscaler", "service-lb", "service-cidr", "ingress-class",
	}
}

// LeaderElect says whether the controllers wait for a Lease before they act.
func LeaderElect(c *v1alpha1.NodeConfiguration) bool {
	return c.Controllers.LeaderElect == yes || c.Controllers.LeaderElect == Auto && len(c.APIServer.Etcd.Servers) > 0
}

const yes, no = "true", "false"

func isController(v any) string {
	if name := v.(string); name != "*" && !slices.Contains(Controllers(), strings.TrimPrefix(name, "-")) {
		return "be * (all), or one of " + strings.Join(Controllers(), ", ") + ", or one of these behind a - (all but that one)"
	}
	return ""
}
