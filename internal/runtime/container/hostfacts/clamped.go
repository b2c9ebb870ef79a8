package hostfacts

import (
	"slices"
	"strings"

	"github.com/moby/sys/capability"
)

// MissingCapabilities lists those that the kernel knows and this host does not give to any container, sorted.
func (f Facts) MissingCapabilities() []string {
	known, err := capability.ListSupported()
	if err != nil {
		return nil
	}
	var missing []string
	for _, c := range known {
		if name := "CAP_" + strings.ToUpper(c.String()); !slices.Contains(f.Spec.Capabilities, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
