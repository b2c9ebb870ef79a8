package config

import (
	"fmt"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// maxShutdown is the longest time that pods may have to end when the machine stops.
const maxShutdown = 24 * time.Hour

// shutdown holds the keys against a kubelet's rules.
func (v *faults) shutdown(a *v1alpha1.Agent) {
	all, critical := a.ShutdownGracePeriod.Duration, a.ShutdownGracePeriodCriticalPods.Duration
	for _, k := range []struct {
		key   string
		value time.Duration
	}{{"agent.shutdownGracePeriod", all}, {"agent.shutdownGracePeriodCriticalPods", critical}} {
		if k.value != 0 && (k.value < time.Second || k.value > maxShutdown) {
			v.add(k.key, k.value, "be 0s (systemd-logind is not asked to wait) or from 1s to 24h")
		}
	}
	if critical > all {
		v.add("agent.shutdownGracePeriodCriticalPods", critical, fmt.Sprintf("be no more than agent.shutdownGracePeriod, which is %s: it is a part of that", all))
	}
	const key = "agent.shutdownGracePeriodByPodPriority"
	if n := len(a.ShutdownGracePeriodByPodPriority); n > 0 && (all != 0 || critical != 0) {
		v.add(key, fmt.Sprint(n, " entries"), "not be given together with agent.shutdownGracePeriod and agent.shutdownGracePeriodCriticalPods")
	}
	seen, sum := map[int32]bool{}, time.Duration(0)
	for _, p := range a.ShutdownGracePeriodByPodPriority {
		if seen[p.Priority] {
			v.add(key, p.Priority, "name each priority once")
		}
		seen[p.Priority] = true
		seconds := p.ShutdownGracePeriodSeconds
		if seconds < 0 || seconds > int64(maxShutdown/time.Second) {
			v.add(key, seconds, "have shutdownGracePeriodSeconds from 0 to 86400")
			continue
		}
		sum += time.Duration(seconds) * time.Second
	}
	if sum > maxShutdown {
		v.add(key, sum, "be 24h together, or less")
	}
}
