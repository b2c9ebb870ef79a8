package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// maxShutdown is the longest time that pods may have to end when the machine stops.
const maxShutdown = 24 * time.Hour

// shutdown holds how long critical pods have against a kubelet's rule.
func shutdown(c *v1alpha1.NodeConfiguration, f *faults) {
	if all, critical := c.Agent.ShutdownGracePeriod.Duration, c.Agent.ShutdownGracePeriodCriticalPods.Duration; critical > all {
		f.add("agent.shutdownGracePeriodCriticalPods", critical, fmt.Sprintf("be no more than agent.shutdownGracePeriod, which is %s: it is a part of that", all))
	}
}

// shutdownByPriority holds how long pods of each priority have against a kubelet's rules.
func shutdownByPriority(c *v1alpha1.NodeConfiguration, f *faults) {
	const key = "agent.shutdownGracePeriodByPodPriority"
	a := &c.Agent
	if n := len(a.ShutdownGracePeriodByPodPriority); n > 0 && (a.ShutdownGracePeriod.Duration != 0 || a.ShutdownGracePeriodCriticalPods.Duration != 0) {
		f.add(key, fmt.Sprint(n, " entries"), "not be given together with agent.shutdownGracePeriod and agent.shutdownGracePeriodCriticalPods")
	}
	seen, sum := map[int32]bool{}, time.Duration(0)
	for _, p := range a.ShutdownGracePeriodByPodPriority {
		if seen[p.Priority] {
			f.add(key, p.Priority, "name each priority once")
		}
		seen[p.Priority] = true
		seconds := p.ShutdownGracePeriodSeconds
		if seconds < 0 || seconds > int64(maxShutdown/time.Second) {
			f.add(key, seconds, "have shutdownGracePeriodSeconds from 0 to 86400")
			continue
		}
		sum += time.Duration(seconds) * time.Second
	}
	if sum > maxShutdown {
		f.add(key, sum, "be 24h together, or less")
	}
}

func parseShutdownByPriority(c *v1alpha1.NodeConfiguration, text string) error {
	c.Agent.ShutdownGracePeriodByPodPriority = nil
	for item := range strings.SplitSeq(text, ",") {
		priority, seconds, _ := strings.Cut(item, ":")
		p, errP := strconv.ParseInt(priority, 10, 32)
		n, errN := strconv.ParseInt(seconds, 10, 64)
		if errP != nil || errN != nil {
			return fmt.Errorf("%q says nothing: use PRIORITY:SECONDS, such as 100000:10", item)
		}
		c.Agent.ShutdownGracePeriodByPodPriority = append(c.Agent.ShutdownGracePeriodByPodPriority,
			v1alpha1.ShutdownGracePeriodByPodPriority{Priority: int32(p), ShutdownGracePeriodSeconds: n})
	}
	return nil
}
