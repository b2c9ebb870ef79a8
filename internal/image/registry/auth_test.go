package registry

import (
	"testing"
)

func TestCredentialsGoOnlyWhereTheyBelong(t *testing.T) {
	for _, c := range []struct {
		server, host, registry string
		want                   bool
	}{
		{"", "registry.example", "registry.example", true},
		{"", "mirror.example", "registry.example", false},
		{"", "registry-1.docker.io", "docker.io", true},
		{"https://index.docker.io/v1/", "registry-1.docker.io", "docker.io", true},
		{"mirror.example:5000", "mirror.example:5000", "registry.example", true},
		{"mirror.example:5000", "registry.example", "registry.example", false},
		{"https://Registry.Example:443/v2/", "registry.example", "registry.example", true},
		{"registry.example:5000", "registry.example", "registry.example", false},
		{"registry.example", "registry.example:5000", "registry.example:5000", false},
	} {
		if got := (&Auth{ServerAddress: c.server}).appliesTo(c.host, c.registry); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
