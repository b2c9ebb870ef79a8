package pods

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// IsHugepages says of a resource that it is huge pages of some size.
func IsHugepages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// CanBeOvercommitted says of a resource that more of it can be promised than there is, so that a limit may be more than what is requested.
func CanBeOvercommitted(name v1.ResourceName) bool { return !IsExtended(name) && !IsHugepages(name) }

// IsExtended says of a resource that somebody outside Kubernetes defines it, such as a device: its name has a domain, which is not Kubernetes' own.
// Quotas write "requests." before names.
func IsExtended(name v1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(domain, v1.DefaultResourceRequestsPrefix)
}
