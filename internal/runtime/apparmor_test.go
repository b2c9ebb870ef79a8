package runtime_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAppArmor: where the kernel has it and the default profile could be loaded, profiles are applied; else they are refused.
func TestAppArmor(t *testing.T) {
	n := newNode(t)
	sb := n.run("apparmor")
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	has := err == nil && strings.HasPrefix(string(enabled), "Y")
	loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	listed := has && err == nil
	profile := func(change func(*cri.LinuxContainerSecurityContext)) *cri.ContainerConfig {
		cfg := shell("c", "cat /proc/1/attr/current; mount -t tmpfs none /tmp; cat /proc/sys/kernel/core_pattern > /dev/null && echo end")
		change(cfg.Linux.SecurityContext)
		return cfg
	}
	named := profile(func(sc *cri.LinuxContainerSecurityContext) {
		sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "no-such-profile"}
	})
	if !has || listed {
		_, err := n.tryCreate(sb, named)
		wantCode(t, err, codes.FailedPrecondition, "apparmor", "no-such-profile")
	}
	byDefault := profile(func(sc *cri.LinuxContainerSecurityContext) { sc.Apparmor = &cri.SecurityProfile{} })
	if !listed || !strings.Contains(string(loaded), "monopod-default (enforce)") {
		_, err := n.tryCreate(sb, byDefault)
		wantCode(t, err, codes.FailedPrecondition, "apparmor", "RuntimeDefault")
		return
	}
	for name, c := range map[string]struct {
		cfg  *cri.ContainerConfig
		want string
	}{
		"named as the default": {byDefault, "monopod-default (enforce)"},
		"none":                 {profile(func(*cri.LinuxContainerSecurityContext) {}), "monopod-default (enforce)"},
		"by its name": {profile(func(sc *cri.LinuxContainerSecurityContext) {
			sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "monopod-default"}
		}), "monopod-default (enforce)"},
		"unconfined": {profile(func(sc *cri.LinuxContainerSecurityContext) {
			sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
		}), "unconfined"},
	} {
		out := n.output(sb, c.cfg) // the two streams come in any order
		if lines := strings.Split(out, "\n"); !slices.Contains(lines, c.want) || !slices.Contains(lines, "end") {
			t.Errorf("%s: %q, want %s", name, out, c.want)
		}
	}
	// What the capabilities allow, the profile denies.
	mounter := profile(func(sc *cri.LinuxContainerSecurityContext) {
		sc.Capabilities = &cri.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
	})
	mounter.Command[2] = "mount -t tmpfs none /tmp && echo mounted"
	if out := n.output(sb, mounter); strings.Contains(out, "mounted") {
		t.Error(out)
	}
	id := n.launch(sb, shell("exec", sleeper))
	if got := n.exec(id, "cat", "/proc/self/attr/current"); got != "monopod-default (enforce)" {
		t.Errorf("a command runs as %s", got)
	}
	n.check(n.tryStop(id, 10)) // the profile lets signals in
	if st := n.status(id); st.GetExitCode() != 0 {
		t.Errorf("the stop signal did not arrive: %v", st)
	}
}
