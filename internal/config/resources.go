package config

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// Values of agent.enforceNodeAllocatable, agent.memorySwap.swapBehavior and agent.memoryReservationPolicy, as kubelets have them.
const (
	EnforcePods       = "pods"
	EnforceNone       = "none"
	NoSwap            = "NoSwap"
	LimitedSwap       = "LimitedSwap"
	NoReservation     = "None"
	TieredReservation = "TieredReservation"
)

// reservable are the resources of which a part can be kept from pods.
var reservable = []string{"cpu", "memory", "ephemeral-storage"}

func systemReserved(c *v1alpha1.NodeConfiguration, f *faults) {
	reserved("agent.systemReserved", c.Agent.SystemReserved, f)
}

func kubeReserved(c *v1alpha1.NodeConfiguration, f *faults) {
	reserved("agent.kubeReserved", c.Agent.KubeReserved, f)
}

func enforce(c *v1alpha1.NodeConfiguration, f *faults) {
	if list := c.Agent.EnforceNodeAllocatable; len(list) != 1 || list[0] != EnforcePods && list[0] != EnforceNone {
		f.add("agent.enforceNodeAllocatable", strings.Join(list, ","), "be pods or none: the cgroups of the system and of monopod are limited by who makes them, as systemd does")
	}
}

func reserved(key string, amounts map[string]string, f *faults) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if !slices.Contains(reservable, name) {
			f.add(key, name, "have amounts of "+strings.Join(reservable, ", ")+" only")
		}
		if q, err := resource.ParseQuantity(amounts[name]); err != nil || q.Sign() < 0 {
			f.add(key+"."+name, amounts[name], `be a quantity, such as "200m" or "150Mi"`)
		}
	}
}

// Reserved is what of the machine is kept from pods, by resource, of a valid configuration.
func Reserved(a *v1alpha1.Agent) map[string]resource.Quantity {
	sum := map[string]resource.Quantity{}
	for _, amounts := range []map[string]string{a.SystemReserved, a.KubeReserved} {
		for name, amount := range amounts {
			q, err := resource.ParseQuantity(amount)
			if err != nil {
				continue // Validate has told
			}
			q.Add(sum[name])
			sum[name] = q
		}
	}
	return sum
}
