package podspec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "B": "$(A)", "": "empty"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(C)": "$(C)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$": "$", "$$": "$", "a$": "a$", "$A": "$A", "$(A": "$(A", "$()": "empty", "$(C)$(A)": "$(C)1", "$($(A))": "$($(A))",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$", "$$", "$(A)", "$(", "$$(A)", "x$(A)y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// What has no dollar stays, and doubling each dollar is undone.
		got := Expand(strings.ReplaceAll(s, "$", "$$"), func(string) (string, bool) { return "", true })
		if got != s {
			t.Errorf("%q became %q", s, got)
		}
		Expand(s, func(string) (string, bool) { return "$(A)", true })
	})
}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func podOf(containers ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u-1"}}
	for i, r := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Resources: r})
	}
	return p
}

func TestResources(t *testing.T) {
	full := v1.ResourceRequirements{Requests: list("cpu", "500m", "memory", "1Gi"), Limits: list("cpu", "500m", "memory", "1Gi")}
	half := v1.ResourceRequirements{Requests: list("cpu", "250m", "memory", "1Gi"), Limits: list("cpu", "500m")}
	limits := v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "64Mi", "hugepages-2Mi", "4Mi")}
	const node = 4 << 30
	cases := []struct {
		name                string
		pod                 *v1.Pod
		qos                 v1.PodQOSClass
		adj                 int64
		shares, quota, mem  int64
		podShares, podQuota int64
		podMem              int64
	}{
		{"nothing is asked for", podOf(v1.ResourceRequirements{}), v1.PodQOSBestEffort, 1000, 2, 0, 0, 2, 0, 0},
		{"requests are limits", podOf(full), v1.PodQOSGuaranteed, -997, 512, 50000, 1 << 30, 512, 50000, 1 << 30},
		{"limits alone are requests too", podOf(limits), v1.PodQOSGuaranteed, -997, 2048, 200000, 64 << 20, 2048, 200000, 64 << 20},
		{"between", podOf(half), v1.PodQOSBurstable, 750, 256, 50000, 0, 256, 50000, 0},
		{"one without makes the pod burstable and unlimited", podOf(full, v1.ResourceRequirements{}), v1.PodQOSBurstable, 750, 512, 50000, 1 << 30, 512, 0, 0},
		{"a tiny cpu", podOf(v1.ResourceRequirements{Limits: list("cpu", "1m")}), v1.PodQOSBurstable, 999, 2, 1000, 0, 2, 1000, 0},
		{"all memory is not quite as safe as guaranteed", podOf(v1.ResourceRequirements{Requests: list("memory", "4Gi")}), v1.PodQOSBurstable, 3, 2, 0, 0, 2, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := pods.QOS(c.pod); got != c.qos {
				t.Errorf("QoS %s, want %s", got, c.qos)
			}
			r := containerResources(&ContainerInput{Pod: c.pod, Container: &c.pod.Spec.Containers[0], Node: NodeLimits{Memory: node}})
			if r.OomScoreAdj != c.adj || r.CpuShares != c.shares || r.CpuQuota != c.quota || r.MemoryLimitInBytes != c.mem || r.CpuPeriod != 100000 {
				t.Errorf("container %v", r)
			}
			p := podResources(c.pod)
			if p.CpuShares != c.podShares || p.CpuQuota != c.podQuota || p.MemoryLimitInBytes != c.podMem {
				t.Errorf("pod %v", p)
			}
		})
	}
	r := linuxResources(nil, limits.Limits)
	if len(r.HugepageLimits) != 1 || r.HugepageLimits[0].PageSize != "2MB" || r.HugepageLimits[0].Limit != 4<<20 {
		t.Errorf("hugepages %v", r.HugepageLimits)
	}
}

func TestExtendedResources(t *testing.T) {
	c := &v1.Container{Resources: v1.ResourceRequirements{Limits: list("cpu", "1", "example.com/widget", "2", "kubernetes.io/x", "1",
		"attachable.storage.kubernetes.io/y", "1", "example.com/none", "0", "hugepages-2Mi", "2Mi")}}
	if got := ExtendedResources(c); !reflect.DeepEqual(got, map[string]int64{"example.com/widget": 2}) {
		t.Errorf("got %v", got)
	}
}

func TestSandbox(t *testing.T) {
	pod := podOf(v1.ResourceRequirements{})
	pod.Labels = map[string]string{"app": "x"}
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 53, HostPort: 5353, Protocol: v1.ProtocolUDP}}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.a", Value: "1"}}}
	cfg := Sandbox(SandboxInput{Pod: pod, Attempt: 2, CgroupParent: "/cg", LogDir: "/logs", NodeName: "node"})
	ref, ok := RefOf(cfg.Labels)
	switch {
	case !ok || ref != Ref{UID: "u-1", Namespace: "ns", Name: "p"}:
		t.Errorf("ref %+v", ref)
	case cfg.Labels["app"] != "x" || cfg.Metadata.Attempt != 2 || cfg.Metadata.Uid != "u-1" || cfg.LogDirectory != "/logs" || cfg.Hostname != "p":
		t.Errorf("config %v", cfg)
	case len(cfg.PortMappings) != 1 || cfg.PortMappings[0].Protocol != cri.Protocol_UDP || cfg.PortMappings[0].HostPort != 5353:
		t.Errorf("ports %v", cfg.PortMappings)
	case cfg.Linux.CgroupParent != "/cg" || cfg.Linux.Sysctls["net.a"] != "1":
		t.Errorf("linux %v", cfg.Linux)
	}
	pod.Spec.HostNetwork, pod.Spec.Hostname = true, "mine"
	if cfg := Sandbox(SandboxInput{Pod: pod, NodeName: "node"}); cfg.Hostname != "" {
		t.Errorf("on the host's network the sandbox is to be called %q, and containerd refuses that", cfg.Hostname)
	}
}

// TestRefIsNoPath: whoever speaks to the CRI socket may put labels on a sandbox. What they name becomes part of paths.
func TestRefIsNoPath(t *testing.T) {
	good := Ref{UID: "5f1b-..x", Namespace: "ns", Name: "p"}
	labels := func(r Ref) map[string]string {
		return sandboxLabels(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: r.UID, Namespace: r.Namespace, Name: r.Name}})
	}
	if ref, ok := RefOf(labels(good)); !ok || ref != good {
		t.Errorf("%+v, %v", ref, ok)
	}
	for _, bad := range []string{"", ".", "..", "../../../etc", "/etc", "a/b", "a/", "a\x00"} {
		for _, ref := range []Ref{{types.UID(bad), "ns", "p"}, {"u", bad, "p"}, {"u", "ns", bad}} {
			if _, ok := RefOf(labels(ref)); ok {
				t.Errorf("%+q is taken for a pod", ref)
			}
		}
	}
}

func TestContainer(t *testing.T) {
	pod := podOf(v1.ResourceRequirements{})
	c := &pod.Spec.Containers[0]
	c.Image, c.Command, c.Args = "img", []string{"$(A)", "$$(A)"}, []string{"$(B)"}
	cfg := Container(ContainerInput{
		Pod: pod, Container: c, Attempt: 3, Step: 2, ImageID: "sha256:1", Env: []EnvVar{{"A", "a"}},
		Images: map[string]*cri.Image{"pulled": {Id: "sha256:2", RepoDigests: []string{"r.test/app@sha256:3"}}, "loaded": {Id: "sha256:4"}},
	})
	facts := FactsOf(cfg.Labels, cfg.Annotations)
	switch {
	case !reflect.DeepEqual(facts, Facts{Name: "a", RestartCount: 3, Step: 2, Hash: Hash(c),
		VolumeImages: map[string]string{"pulled": "r.test/app@sha256:3", "loaded": "sha256:4"}}):
		t.Errorf("facts %+v", facts)
	case cfg.Image.Image != "sha256:1" || cfg.Image.UserSpecifiedImage != "img" || cfg.LogPath != "a/3.log" || cfg.Metadata.Attempt != 3:
		t.Errorf("config %v", cfg)
	case strings.Join(cfg.Command, " ") != "a $(A)" || cfg.Args[0] != "$(B)":
		t.Errorf("command %q %q", cfg.Command, cfg.Args)
	case string(cfg.Envs[0].Value) != "a":
		t.Errorf("environment %v", cfg.Envs)
	}
	// Labels are outside data.
	if got := FactsOf(nil, map[string]string{annotationRestartCount: "-1", annotationStep: "x"}); got.RestartCount != 0 || got.Step != 0 {
		t.Errorf("facts %+v", got)
	}
}

func TestSecurity(t *testing.T) {
	yes, no, user, group := true, false, int64(7), int64(8)
	pod := podOf(v1.ResourceRequirements{})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: &user, RunAsNonRoot: &yes, FSGroup: &group, SupplementalGroups: []int64{9},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
	}
	c := &pod.Spec.Containers[0]
	got := containerSecurity(pod, c)
	if got.RunAsUser.Value != 7 || !reflect.DeepEqual(got.SupplementalGroups, []int64{9, 8}) || !NonRoot(pod, c) ||
		got.Seccomp.ProfileType != cri.SecurityProfile_RuntimeDefault || len(got.MaskedPaths) == 0 || got.NoNewPrivs {
		t.Errorf("from the pod: %v", got)
	}
	zero := int64(0)
	c.SecurityContext = &v1.SecurityContext{
		RunAsUser: &zero, RunAsNonRoot: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities:   &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
	}
	got = containerSecurity(pod, c)
	if got.RunAsUser.Value != 0 || NonRoot(pod, c) || !got.NoNewPrivs || !got.ReadonlyRootfs || got.Seccomp.ProfileType != cri.SecurityProfile_Unconfined ||
		got.Capabilities.AddCapabilities[0] != "NET_ADMIN" || got.Capabilities.DropCapabilities[0] != "ALL" {
		t.Errorf("the container's own wins: %v", got)
	}
	file := "profiles/a.json"
	c.SecurityContext.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
	if got := containerSecurity(pod, c).Seccomp; got.ProfileType != cri.SecurityProfile_Localhost || got.LocalhostRef != "/var/lib/kubelet/seccomp/profiles/a.json" {
		t.Errorf("a profile in a file: %v", got)
	}
	c.SecurityContext.Privileged = &yes
	if got := containerSecurity(pod, c); !got.Privileged || got.MaskedPaths != nil || !sandboxSecurity(pod).Privileged {
		t.Errorf("privileged: %v", got)
	}
	pod.Spec.HostNetwork, pod.Spec.HostPID = true, true
	if ns := namespaces(pod); ns.Network != cri.NamespaceMode_NODE || ns.Pid != cri.NamespaceMode_NODE || ns.Ipc != cri.NamespaceMode_POD {
		t.Errorf("namespaces %v", ns)
	}
}

// What the host's kernel, or a profile on it, makes of a container is passed on as it is; the container's own wins.
func TestConfinement(t *testing.T) {
	user, group, own, unmasked := int64(7), int64(8), int64(9), v1.UnmaskedProcMount
	strict, profile := v1.SupplementalGroupsPolicyStrict, "tight"
	pod := podOf(v1.ResourceRequirements{})
	c := &pod.Spec.Containers[0]
	if got := containerSecurity(pod, c); got.Apparmor != nil || got.SelinuxOptions != nil || got.RunAsGroup != nil ||
		got.SupplementalGroupsPolicy != cri.SupplementalGroupsPolicy_Merge || len(got.MaskedPaths) == 0 || len(got.ReadonlyPaths) == 0 {
		t.Errorf("of a pod that says nothing: %v", got)
	}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: &user, RunAsGroup: &group, SupplementalGroupsPolicy: &strict,
		AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &profile},
		SELinuxOptions:  &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"},
	}
	for _, got := range []struct {
		group  *cri.Int64Value
		policy cri.SupplementalGroupsPolicy
		label  *cri.SELinuxOption
	}{
		{containerSecurity(pod, c).RunAsGroup, containerSecurity(pod, c).SupplementalGroupsPolicy, containerSecurity(pod, c).SelinuxOptions},
		{sandboxSecurity(pod).RunAsGroup, sandboxSecurity(pod).SupplementalGroupsPolicy, sandboxSecurity(pod).SelinuxOptions},
	} {
		if l := got.label; got.group.GetValue() != 8 || got.policy != cri.SupplementalGroupsPolicy_Strict || l.User != "u" || l.Role != "r" || l.Type != "t" || l.Level != "s0" {
			t.Errorf("from the pod: %+v", got)
		}
	}
	if got := containerSecurity(pod, c).Apparmor; got.ProfileType != cri.SecurityProfile_Localhost || got.LocalhostRef != "tight" {
		t.Errorf("AppArmor's profile of the pod: %v", got)
	}
	c.SecurityContext = &v1.SecurityContext{
		RunAsGroup: &own, ProcMount: &unmasked, AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}, SELinuxOptions: &v1.SELinuxOptions{Level: "s1"},
	}
	if got := containerSecurity(pod, c); got.RunAsGroup.Value != 9 || got.Apparmor.ProfileType != cri.SecurityProfile_Unconfined || got.SelinuxOptions.Level != "s1" ||
		got.SelinuxOptions.User != "" || got.MaskedPaths != nil || got.ReadonlyPaths != nil {
		t.Errorf("the container's own wins: %v", got)
	}
	c.SecurityContext.AppArmorProfile.Type = v1.AppArmorProfileTypeRuntimeDefault
	if got := containerSecurity(pod, c).Apparmor; got.ProfileType != cri.SecurityProfile_RuntimeDefault {
		t.Errorf("the runtime's own profile: %v", got)
	}
}

// A pod with users of its own says so of the sandbox, of each container, and of all that is mounted; another one says nothing, as before there were any.
func TestUserNamespace(t *testing.T) {
	pod := podOf(v1.ResourceRequirements{})
	config := func(users *userns.Range, target ids.ContainerID) (*cri.PodSandboxConfig, *cri.ContainerConfig) {
		cfg := Container(ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], IDs: users, Target: target, Mounts: []*cri.Mount{{HostPath: "/a"}, {HostPath: "/b"}}})
		MapMounts(cfg)
		return Sandbox(SandboxInput{Pod: pod, IDs: users}), cfg
	}
	sandbox, c := config(nil, "")
	if o := sandbox.Linux.SecurityContext.NamespaceOptions; o.UsernsOptions != nil || c.Linux.SecurityContext.NamespaceOptions.UsernsOptions != nil || c.Mounts[0].UidMappings != nil {
		t.Errorf("of the host's users: %v, %v", sandbox, c)
	}
	want := []*cri.IDMapping{{HostId: 1 << 30, Length: 65536}}
	for _, target := range []ids.ContainerID{"", "other"} {
		sandbox, c = config(&userns.Range{First: 1 << 30, Length: 65536}, target)
		for _, o := range []*cri.NamespaceOption{sandbox.Linux.SecurityContext.NamespaceOptions, c.Linux.SecurityContext.NamespaceOptions} {
			if ids, ok := IDsOf(o.UsernsOptions); !ok || ids.First != 1<<30 || ids.Length != 65536 {
				t.Errorf("read back: %+v, %t", ids, ok)
			}
			if u := o.UsernsOptions; u.GetMode() != cri.NamespaceMode_POD || !reflect.DeepEqual(u.Uids, want) || !reflect.DeepEqual(u.Gids, want) {
				t.Errorf("namespaces %v", o)
			}
		}
		if got := c.Linux.SecurityContext.NamespaceOptions.TargetId; got != string(target) {
			t.Errorf("target %q, want %q", got, target)
		}
		for _, m := range c.Mounts {
			if !reflect.DeepEqual(m.UidMappings, want) || !reflect.DeepEqual(m.GidMappings, want) {
				t.Errorf("mount %v", m)
			}
		}
	}
}

// What a runtime tells of a sandbox that somebody else has made is taken for ours only where it could be.
func TestIDsOf(t *testing.T) {
	m := func(first, host, length uint32) []*cri.IDMapping {
		return []*cri.IDMapping{{ContainerId: first, HostId: host, Length: length}}
	}
	for name, u := range map[string]*cri.UserNamespace{
		"none": nil, "the host's": {Mode: cri.NamespaceMode_NODE}, "no mapping": {}, "no groups": {Uids: m(0, 1<<20, 9)}, "no users": {Gids: m(0, 1<<20, 9)},
		"two":          {Uids: append(m(0, 1<<20, 9), m(9, 1<<21, 9)...), Gids: m(0, 1<<20, 9)},
		"other groups": {Uids: m(0, 1<<20, 9), Gids: m(0, 1<<21, 9)}, "fewer groups": {Uids: m(0, 1<<20, 9), Gids: m(0, 1<<20, 8)},
		"without root": {Uids: m(1, 1<<20, 9), Gids: m(1, 1<<20, 9)}, "without its group": {Uids: m(0, 1<<20, 9), Gids: m(1, 1<<20, 9)},
	} {
		if ids, ok := IDsOf(u); ok {
			t.Errorf("%s: %+v", name, ids)
		}
	}
}

// Each signal that the API knows has a number of CRI's.
func TestStopSignals(t *testing.T) {
	numbers := map[cri.Signal]string{}
	for _, name := range pods.Signals() {
		n := stopSignal(v1.Signal(name))
		if n == 0 || numbers[n] != "" {
			t.Errorf("%s is %v, as %q is", name, n, numbers[n])
		}
		numbers[n] = name
	}
	if got := stopSignal("SIGRTMIN+3"); got != cri.Signal_SIGNAL_SIGRTMINPLUS3 {
		t.Errorf("SIGRTMIN+3 is %v", got)
	}
}

// CRI has no group without a user, and Kubernetes has: the image's user stands beside it, by number or by name, and root's where it has none.
func TestGroupWithoutUser(t *testing.T) {
	group := int64(8)
	pod := podOf(v1.ResourceRequirements{})
	c := &pod.Spec.Containers[0]
	user := func(image *cri.Image) string {
		sc := Container(ContainerInput{Pod: pod, Container: c, Image: image}).Linux.SecurityContext
		number := func(v *cri.Int64Value) string {
			if v == nil {
				return "none"
			}
			return fmt.Sprint(v.Value)
		}
		return fmt.Sprintf("%s %q %s", number(sc.RunAsUser), sc.RunAsUsername, number(sc.RunAsGroup))
	}
	if got := user(&cri.Image{Username: "app"}); got != `none "" none` {
		t.Errorf("without a group the image alone decides: %s", got)
	}
	for name, set := range map[string]func(){
		"pod": func() { pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsGroup: &group} },
		"container": func() {
			pod.Spec.SecurityContext, c.SecurityContext = nil, &v1.SecurityContext{RunAsGroup: &group}
		},
	} {
		set()
		if got := sandboxSecurity(pod); got.RunAsGroup != nil {
			t.Errorf("%s: the sandbox has the group %v and no user", name, got.RunAsGroup)
		}
		for want, image := range map[string]*cri.Image{
			`0 "" 8`:       {},
			`1234 "" 8`:    {Uid: &cri.Int64Value{Value: 1234}},
			`none "app" 8`: {Username: "app"},
		} {
			if got := user(image); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	own := int64(7)
	c.SecurityContext.RunAsUser = &own
	if got := user(&cri.Image{Username: "app"}); got != `7 "" 8` {
		t.Errorf("the pod's own user: %s", got)
	}
}
