package ocispec

import (
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAppArmorFor(t *testing.T) {
	type sc = cri.LinuxContainerSecurityContext
	profile := func(kind cri.SecurityProfile_ProfileType, ref string) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
	}
	for name, c := range map[string]struct {
		sc   *sc
		want string
	}{
		"none":                    {&sc{}, "default"},
		"default":                 {&sc{Apparmor: profile(cri.SecurityProfile_RuntimeDefault, "")}, "default"},
		"unconfined":              {&sc{Apparmor: profile(cri.SecurityProfile_Unconfined, "")}, ""},
		"localhost":               {&sc{Apparmor: profile(cri.SecurityProfile_Localhost, "p")}, "p"},
		"localhost, with prefix":  {&sc{Apparmor: profile(cri.SecurityProfile_Localhost, "localhost/p")}, "p"},
		"older":                   {&sc{ApparmorProfile: "localhost/p"}, "p"},
		"older, default":          {&sc{ApparmorProfile: "runtime/default"}, "default"},
		"older, unconfined":       {&sc{ApparmorProfile: "unconfined"}, ""},
		"the newer field counts":  {&sc{ApparmorProfile: "localhost/p", Apparmor: profile(cri.SecurityProfile_Unconfined, "")}, ""},
		"privileged has no one's": {&sc{Privileged: true, ApparmorProfile: "localhost/p"}, ""},
	} {
		if got, err := AppArmorFor(c.sc, Host{AppArmor: true, AppArmorDefault: "default"}); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	if got, err := AppArmorFor(&sc{}, Host{}); err != nil || got != "" {
		t.Errorf("without AppArmor: %q, %v", got, err)
	}
}

func TestEffectiveOf(t *testing.T) {
	in := testInput()
	in.Host.MinOOMScoreAdj = new(-5)
	sc := security(&in)
	sc.Capabilities = &cri.Capability{AddCapabilities: []string{"SYS_RESOURCE"}}
	got, err := EffectiveOf(in.Container, &cri.LinuxContainerResources{OomScoreAdj: -900}, in.Host)
	if err != nil || got.OOMScoreAdj != -5 || !slices.Equal(got.MissingCapabilities, []string{"CAP_SYS_RESOURCE"}) || slices.Contains(got.Capabilities, "CAP_SYS_RESOURCE") ||
		got.Seccomp != "Unconfined" || got.AppArmor != "unconfined" {
		t.Errorf("%+v, %v", got, err)
	}
	sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "/p.json"}
	sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "p"}
	if got, err := EffectiveOf(in.Container, nil, in.Host); err != nil || got.Seccomp != "/p.json" || got.AppArmor != "p" || got.OOMScoreAdj != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
