package hostfacts

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/selinux"
)

// TestSELinuxModes: each mode on this host, whatever it has; that labels are right is a matter of the machine that has SELinux.
func TestSELinuxModes(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if s, why, err := probeSELinux(SELinuxDisabled, log); s != nil || err != nil || !strings.Contains(why, "runtime.selinux") {
		t.Errorf("disabled: %v, %q, %v", s, why, err)
	}
	if _, _, err := probeSELinux("on", log); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no mode at all: %v", err)
	}
	for _, mode := range []SELinuxMode{"", SELinuxAuto} {
		if s, why, err := probeSELinux(mode, log); (s == nil) != (why != "") || err != nil || s != nil && !selinux.Enabled() {
			t.Errorf("auto: %v, %q, %v", s, why, err)
		}
	}
	auto, why, _ := probeSELinux(SELinuxAuto, log)
	s, _, err := probeSELinux(SELinuxEnabled, log)
	if auto != nil && (s == nil || err != nil) {
		t.Errorf("enabled, where it can be: %v", err)
	}
	if auto == nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), why)) {
		t.Errorf("enabled, where it cannot be (%s): %v", why, err)
	}
}

func TestSensitivity(t *testing.T) {
	for level, want := range map[string]string{"": "", "s0": "s0", "s0:c1,c2": "s0", "s0-s15:c0.c1023": "s0", "s1:c0-s15:c0.c5": "s1"} {
		if got := sensitivity(level); got != want {
			t.Errorf("%q: %q, want %q", level, got, want)
		}
	}
}
