package agent

import "strings"

// kubernetesVersion is the version of Kubernetes whose node this agent is: that of the libraries that it is built with.
const kubernetesVersion = "v1.37.2"

// kubeletVersion is what the Node object shows as the kubelet's version. Clients parse it as a semantic version.
func kubeletVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
			return r
		}
		return '-'
	}, version)
	if clean = strings.Trim(clean, ".-"); clean == "" {
		return kubernetesVersion + "-monopod"
	}
	return kubernetesVersion + "-monopod." + clean
}
