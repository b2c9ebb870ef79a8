package ocispec

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// selinuxHost has the labels that most policies for containers have.
func selinuxHost() Host {
	return Host{SELinux: &SELinux{
		Process:    Label{"system_u", "system_r", "container_t", "s0"},
		File:       Label{"system_u", "object_r", "container_file_t", "s0"},
		Unconfined: Label{"system_u", "system_r", "spc_t", "s0"},
		Categories: 1024,
	}}
}

func TestParseLabel(t *testing.T) {
	for s, want := range map[string]Label{
		"":                                 {},
		"u:r:t":                            {"u", "r", "t", ""},
		"u:r:t:s0":                         {"u", "r", "t", "s0"},
		"u:r:t:s0:c1,c2":                   {"u", "r", "t", "s0:c1,c2"},
		"u:r:t:s0-s15:c0.c1023":            {"u", "r", "t", "s0-s15:c0.c1023"},
		"system_u:system_r:spc_t:s0:c1.c5": {"system_u", "system_r", "spc_t", "s0:c1.c5"},
	} {
		got, err := ParseLabel(s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("%q: %+v, %q, %v", s, got, got, err)
		}
	}
	if _, err := ParseLabel("u:r"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("half a label: %v", err)
	}
}

func TestSELinuxLabels(t *testing.T) {
	type options = cri.SELinuxOption
	const level = "s0:c7,c9"
	const process, file = "system_u:system_r:container_t:", "system_u:object_r:container_file_t:"
	for name, c := range map[string]struct {
		pod          *options
		hostPID, ipc bool
		container    *options
		privileged   bool
		want         SELinuxLabels
	}{
		"by default":                          {want: SELinuxLabels{process + level, file + level, level}},
		"the pod's level":                     {pod: &options{Level: "s0:c1"}, want: SELinuxLabels{process + "s0:c1", file + "s0:c1", "s0:c1"}},
		"the pod's type":                      {pod: &options{Type: "web_t"}, want: SELinuxLabels{"system_u:system_r:web_t:" + level, file + level, level}},
		"all of the pod's":                    {pod: &options{User: "u", Role: "r", Type: "t", Level: "s0"}, want: SELinuxLabels{"u:r:t:s0", "u:object_r:container_file_t:s0", "s0"}},
		"empty options":                       {pod: &options{}, container: &options{}, want: SELinuxLabels{process + level, file + level, level}},
		"the container's type":                {container: &options{Type: "web_t"}, want: SELinuxLabels{"system_u:system_r:web_t:" + level, file + level, level}},
		"the container's level":               {container: &options{Level: "s0:c3"}, want: SELinuxLabels{process + "s0:c3", file + "s0:c3", "s0:c3"}},
		"the container's, not the pod's":      {pod: &options{Type: "web_t", Level: "s0:c1"}, container: &options{User: "u"}, want: SELinuxLabels{"u:system_r:container_t:s0:c1", "u:object_r:container_file_t:s0:c1", "s0:c1"}},
		"the node's processes":                {hostPID: true, want: SELinuxLabels{"system_u:system_r:spc_t:s0", file + level, level}},
		"the node's IPC":                      {ipc: true, want: SELinuxLabels{"system_u:system_r:spc_t:s0", file + level, level}},
		"the node's processes, with a type":   {hostPID: true, pod: &options{Type: "mon_t"}, want: SELinuxLabels{"system_u:system_r:mon_t:" + level, file + level, level}},
		"the node's IPC, the container's":     {ipc: true, container: &options{Type: "mon_t"}, want: SELinuxLabels{"system_u:system_r:mon_t:" + level, file + level, level}},
		"privileged":                          {privileged: true, want: SELinuxLabels{"system_u:system_r:spc_t:s0", file + level, level}},
		"privileged, with options":            {privileged: true, container: &options{Type: "web_t"}, want: SELinuxLabels{"system_u:system_r:spc_t:s0", file + level, level}},
		"privileged, with options of a pod's": {privileged: true, pod: &options{Type: "web_t", Level: "s0"}, want: SELinuxLabels{"system_u:system_r:spc_t:s0", file + "s0", "s0"}},
	} {
		nsOptions := &cri.NamespaceOption{}
		if c.hostPID {
			nsOptions.Pid = cri.NamespaceMode_NODE
		}
		if c.ipc {
			nsOptions.Ipc = cri.NamespaceMode_NODE
		}
		host := selinuxHost()
		pod := PodLabels(&cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{SelinuxOptions: c.pod, NamespaceOptions: nsOptions}}}, host, level)
		sc := &cri.LinuxContainerSecurityContext{SelinuxOptions: c.container, Privileged: c.privileged}
		if got := ContainerLabels(pod, sc, host); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := ContainerLabels(pod, sc, Host{}); got != (SELinuxLabels{}) {
			t.Errorf("%s, without SELinux: %+v", name, got)
		}
		if got := ContainerLabels(SELinuxLabels{}, sc, host); got != (SELinuxLabels{}) {
			t.Errorf("%s, in a pod that has no labels: %+v", name, got)
		}
	}
	if got := PodLabels(nil, Host{}, level); got != (SELinuxLabels{}) {
		t.Errorf("without SELinux: %+v", got)
	}
	// A policy without levels, and without a domain for what is not confined.
	host := Host{SELinux: &SELinux{Process: Label{"u", "r", "t", ""}, File: Label{"u", "o", "f", ""}}}
	pod := PodLabels(nil, host, "")
	if got, want := ContainerLabels(pod, nil, host), (SELinuxLabels{"u:r:t", "u:o:f", ""}); got != want {
		t.Errorf("without levels: %+v", got)
	}
	if got, want := ContainerLabels(pod, &cri.LinuxContainerSecurityContext{Privileged: true}, host), (SELinuxLabels{"", "u:o:f", ""}); got != want {
		t.Errorf("without levels, privileged: %+v", got)
	}
}

func TestNewLevel(t *testing.T) {
	s := &SELinux{Process: Label{"u", "r", "t", "s0-s15:c0.c1023"}, Categories: 4}
	taken := map[string]bool{}
	for range 6 {
		level, err := s.NewLevel(func(l string) bool { return taken[l] }, func(n int) int { return n - 2 })
		if err != nil || taken[level] {
			t.Fatalf("%q, %v", level, err)
		}
		taken[level] = true
	}
	for a := range 4 {
		for b := a + 1; b < 4; b++ {
			if l := fmt.Sprintf("s0:c%d,c%d", a, b); !taken[l] {
				t.Errorf("%s was never given: %v", l, taken)
			}
		}
	}
	if _, err := s.NewLevel(func(l string) bool { return taken[l] }, func(int) int { return 0 }); !errdefs.IsResourceExhausted(err) {
		t.Errorf("all are taken: %v", err)
	}
	for _, none := range []*SELinux{nil, {Process: Label{"u", "r", "t", ""}, Categories: 9}, {Process: Label{"u", "r", "t", "s0"}}} {
		if level, err := none.NewLevel(nil, nil); level != "" || err != nil {
			t.Errorf("%+v: %q, %v", none, level, err)
		}
	}
	last := func(n int) int { return n - 1 }
	if level, err := selinuxHost().SELinux.NewLevel(func(string) bool { return false }, last); level != "s0:c1022,c1023" || err != nil {
		t.Errorf("the last pair: %q, %v", level, err)
	}
}

func TestCheckSELinux(t *testing.T) {
	host := selinuxHost()
	noLevels := Host{SELinux: &SELinux{Process: Label{"u", "r", "t", ""}}}
	type options = cri.SELinuxOption
	for name, c := range map[string]struct {
		o    *options
		host Host
		is   func(error) bool
	}{
		"none":                {nil, Host{}, nil},
		"empty":               {&options{}, Host{}, nil},
		"a host without":      {&options{Type: "t"}, Host{}, nil},
		"labels of no use":    {&options{Type: "t"}, Host{SELinuxUnfit: true}, errdefs.IsFailedPrecondition},
		"all":                 {&options{User: "u", Role: "r", Type: "t", Level: "s0-s1:c1,c2.c4"}, host, nil},
		"two parts in one":    {&options{Type: "t:s0"}, host, errdefs.IsInvalidArgument},
		"a space":             {&options{Level: "s0 "}, host, errdefs.IsInvalidArgument},
		"a quote":             {&options{Level: `s0"`}, host, errdefs.IsInvalidArgument},
		"a NUL":               {&options{User: "u\x00"}, host, errdefs.IsInvalidArgument},
		"a level without any": {&options{Level: "s0"}, noLevels, errdefs.IsFailedPrecondition},
	} {
		err := checkSELinux("selinux_options", c.o, c.host)
		if c.is == nil && err != nil || c.is != nil && !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
