package config

import (
	"slices"
	"strings"
	"time"

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

func (v *faults) controllers(all *v1alpha1.Controllers) {
	v.oneOf("controllers.leaderElect", all.LeaderElect, Auto, yes, no)
	if t := all.LeaseDuration.Duration; t < time.Second || t > 10*time.Minute || t%time.Second != 0 {
		v.add("controllers.leaseDuration", t, "be whole seconds from 1s to 10m")
	}
	for _, c := range all.Enabled {
		if c != "*" && !slices.Contains(Controllers(), strings.TrimPrefix(c, "-")) {
			v.add("controllers.enabled", c, "be * (all), or one of "+strings.Join(Controllers(), ", ")+", or one of these behind a - (all but that one)")
		}
	}
}
