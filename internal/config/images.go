package config

import (
	"fmt"

	"monopod.dev/monopod/api/config/v1alpha1"
)

func imageThresholds(c *v1alpha1.NodeConfiguration, f *faults) {
	if high, low := *c.Agent.ImageGCHighThresholdPercent, *c.Agent.ImageGCLowThresholdPercent; low >= high {
		f.add("agent.imageGCLowThresholdPercent", low, fmt.Sprintf("be less than agent.imageGCHighThresholdPercent, which is %d", high))
	}
}

func imageAges(c *v1alpha1.NodeConfiguration, f *faults) {
	if least, most := c.Agent.ImageMinimumGCAge.Duration, c.Agent.ImageMaximumGCAge.Duration; most > 0 && most <= least {
		f.add("agent.imageMaximumGCAge", most, fmt.Sprintf("be more than agent.imageMinimumGCAge, which is %s, or 0s (for ever)", least))
	}
}

func credentialProviders(c *v1alpha1.NodeConfiguration, f *faults) {
	file, dir := c.Agent.ImageCredentialProviderConfig, c.Agent.ImageCredentialProviderBinDir
	if file != "" && dir == "" {
		f.add("agent.imageCredentialProviderBinDir", dir, "be given together with agent.imageCredentialProviderConfig")
	}
	if file == "" && dir != "" {
		f.add("agent.imageCredentialProviderConfig", file, "be given together with agent.imageCredentialProviderBinDir")
	}
}
