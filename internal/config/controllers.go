package config

import (
	"slices"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/controllers/catalog"
)

// LeaderElect says whether the controllers wait for a Lease before they act.
func LeaderElect(c *v1alpha1.NodeConfiguration) bool {
	return c.Controllers.LeaderElect == yes || c.Controllers.LeaderElect == Auto && len(c.APIServer.Etcd.Servers) > 0
}

const yes, no = "true", "false"

func isController(v any) string {
	if name := v.(string); name != "*" && !slices.Contains(catalog.Names(), strings.TrimPrefix(name, "-")) {
		return "be * (all), or one of " + strings.Join(catalog.Names(), ", ") + ", or one of these behind a - (all but that one)"
	}
	return ""
}
