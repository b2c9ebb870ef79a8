package env

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The variables of the API are there, can be used in others, and give way to a container's own.
func TestAPI(t *testing.T) {
	c := &v1.Container{Name: "a", Env: []v1.EnvVar{{Name: "URL", Value: "https://$(KUBERNETES_SERVICE_HOST)"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "1"}}}
	vars, err := Resolve(t.Context(), Input{Pod: &v1.Pod{}, Container: c, Objects: someObjects{}, Services: API(netip.MustParseAddrPort("10.61.0.1:6443"))})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range vars {
		got[e.Name] = e.Value
	}
	for name, want := range map[string]string{
		"URL": "https://10.61.0.1", "KUBERNETES_SERVICE_HOST": "10.61.0.1", "KUBERNETES_SERVICE_PORT": "1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
		"KUBERNETES_PORT": "tcp://10.61.0.1:6443", "KUBERNETES_PORT_6443_TCP_ADDR": "10.61.0.1",
	} {
		if got[name] != want {
			t.Errorf("%s=%s, want %s", name, got[name], want)
		}
	}
	if v := API(netip.MustParseAddrPort("[fd00::1]:443"))[3]; v.Value != "tcp://[fd00::1]:443" {
		t.Errorf("of IPv6: %s", v.Value)
	}
	if API(netip.AddrPort{}) != nil {
		t.Error("variables of nothing")
	}
}
