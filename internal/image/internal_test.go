package image

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

func FuzzReference(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:c", "h:1/a@sha256:" + string(make([]byte, 64)), "sha256:", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseAny(s)
		if err != nil {
			return
		}
		if p.id == "" && p.name == nil {
			t.Fatalf("%q is neither an id nor a name", s)
		}
		if p.name != nil {
			again, err := parseAny(p.name.String())
			if err != nil || again.name == nil || again.name.String() != p.name.String() {
				t.Fatalf("%q becomes %s, and that %v %v", s, p.name, again, err)
			}
		}
	})
}

func FuzzHostsFile(f *testing.F) {
	f.Add([]byte("server = \"https://a\"\n[host.\"http://b:1\"]\ncapabilities = [\"pull\"]\n"))
	f.Add([]byte("[host"))
	f.Fuzz(func(_ *testing.T, raw []byte) { _ = checkHostsFile(raw) })
}
