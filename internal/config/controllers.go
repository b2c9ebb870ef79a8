package config

import (
	"slices"
	"strings"
)

// Controllers are the names of the controllers that can be chosen.
func Controllers() []string {
	return []string{
		"binder", "service-account", "root-ca", "namespace", "garbage-collector", "certificates", "clusterrole-aggregation", "node-lifecycle", "taint-eviction", "pod-garbage-collector", "endpoints",
		"deployment", "replicaset", "replication-controller", "statefulset", "daemonset", "job", "ttl-after-finished", "cronjob", "disruption", "horizontalpodautoscaler", "service-lb", "service-cidr",
	}
}

func (v *faults) controllers(choice []string) {
	for _, c := range choice {
		if c != "*" && !slices.Contains(Controllers(), strings.TrimPrefix(c, "-")) {
			v.add("controllers.enabled", c, "be * (all), or one of "+strings.Join(Controllers(), ", ")+", or one of these behind a - (all but that one)")
		}
	}
}
