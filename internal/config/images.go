package config

import (
	"fmt"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// The defaults are a kubelet's.
func defaultImages(a *v1alpha1.Agent) {
	setNumber(&a.ImageGCHighThresholdPercent, 85)
	setNumber(&a.ImageGCLowThresholdPercent, 80)
	if a.ImageMinimumGCAge == nil {
		a.ImageMinimumGCAge = &v1alpha1.Duration{Duration: 2 * time.Minute}
	}
	if a.ImageGCPeriod.Duration == 0 {
		a.ImageGCPeriod.Duration = 5 * time.Minute
	}
}

func (v *faults) images(a *v1alpha1.Agent) {
	high, low := *a.ImageGCHighThresholdPercent, *a.ImageGCLowThresholdPercent
	if high < 0 || high > 100 {
		v.add("agent.imageGCHighThresholdPercent", high, "be between 0 and 100 (images are never removed)")
	}
	if low < 0 || low > 100 {
		v.add("agent.imageGCLowThresholdPercent", low, "be between 0 and 100")
	}
	if low >= high {
		v.add("agent.imageGCLowThresholdPercent", low, fmt.Sprintf("be less than agent.imageGCHighThresholdPercent, which is %d", high))
	}
	least, most := a.ImageMinimumGCAge.Duration, a.ImageMaximumGCAge.Duration
	if least < 0 {
		v.add("agent.imageMinimumGCAge", least, "be 0s or a time")
	}
	if most < 0 {
		v.add("agent.imageMaximumGCAge", most, "be 0s (for ever) or a time")
	}
	if most > 0 && most <= least {
		v.add("agent.imageMaximumGCAge", most, fmt.Sprintf("be more than agent.imageMinimumGCAge, which is %s, or 0s (for ever)", least))
	}
	file, dir := a.ImageCredentialProviderConfig, a.ImageCredentialProviderBinDir
	if file != "" {
		v.absolute("agent.imageCredentialProviderConfig", file)
	}
	if dir != "" {
		v.absolute("agent.imageCredentialProviderBinDir", dir)
	}
	if file != "" && dir == "" {
		v.add("agent.imageCredentialProviderBinDir", dir, "be given together with agent.imageCredentialProviderConfig")
	}
	if file == "" && dir != "" {
		v.add("agent.imageCredentialProviderConfig", file, "be given together with agent.imageCredentialProviderBinDir")
	}
	if t := a.ImageGCPeriod.Duration; t < time.Second {
		v.add("agent.imageGCPeriod", t, "be at least 1s")
	}
}
