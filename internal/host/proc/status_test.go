package proc

import (
	"os"
	"os/exec"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestLimitsAndSecurity(t *testing.T) {
	limits, err := Limits(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, resource := range map[string]int{MaxOpenFiles: unix.RLIMIT_NOFILE, "Max core file size": unix.RLIMIT_CORE, "Max locked memory": unix.RLIMIT_MEMLOCK} {
		var want unix.Rlimit
		if err := unix.Getrlimit(resource, &want); err != nil {
			t.Fatal(err)
		}
		if got := limits[name]; got != (Limit{Soft: want.Cur, Hard: want.Max}) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	s, err := ReadSecurity(os.Getpid())
	if err != nil || s.Bounding == 0 || s.Effective&^s.Permitted != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	noNew, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || s.NoNewPrivs != (noNew == 1) {
		t.Errorf("no_new_privs %v, the kernel says %d, %v", s.NoNewPrivs, noNew, err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Limits(cmd.Process.Pid); !errdefs.IsNotFound(err) {
		t.Errorf("limits of a process that has ended: %v, want NotFound", err)
	}
	if _, err := ReadSecurity(cmd.Process.Pid); !errdefs.IsNotFound(err) {
		t.Errorf("status of a process that has ended: %v, want NotFound", err)
	}
}

func TestParseLimits(t *testing.T) {
	got := parseLimits("Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max cpu time              unlimited            unlimited            seconds   \n" +
		"Max open files            1024                 524288               files     \n" +
		"Max nice priority         0                    0                    \n" + "Max odd                   x                    1\n\n")
	want := map[string]Limit{"Max cpu time": {Unlimited, Unlimited}, MaxOpenFiles: {1024, 524288}, "Max nice priority": {}}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, l := range want {
		if got[name] != l {
			t.Errorf("%s: %+v, want %+v", name, got[name], l)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("Max open files            1024                 524288               files     \n")
	f.Add("CapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n")
	f.Fuzz(func(t *testing.T, raw string) {
		for name := range parseLimits(raw) {
			if name == "" {
				t.Errorf("a limit without a name in %q", raw)
			}
		}
		if s, err := parseSecurity([]byte(raw)); err == nil && s.Seccomp != 0 && len(raw) < 10 {
			t.Errorf("%+v of %q", s, raw)
		}
	})
}
