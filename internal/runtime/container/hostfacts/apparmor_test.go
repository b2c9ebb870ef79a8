package hostfacts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	peer "github.com/containerd/containerd/v2/contrib/apparmor"
)

func TestHasProfile(t *testing.T) {
	const list = "monopod-default (enforce)\nmy profile (complain)\n/usr/bin/man (enforce)\nnested//child (enforce)\nodd (name) (kill)\n"
	for _, name := range []string{"monopod-default", "my profile", "/usr/bin/man", "nested//child", "odd (name)"} {
		if !hasProfile(list, name) {
			t.Errorf("%q is not found", name)
		}
	}
	for _, name := range []string{"", "monopod", "my", "profile", "odd", "enforce", "man"} {
		if hasProfile(list, name) {
			t.Errorf("%q is found", name)
		}
	}
}

// compile makes of a profile what the kernel would get; neither it nor AppArmor is needed for that. features is what the kernel would know.
func compile(t *testing.T, profile, features string) []byte {
	t.Helper()
	parser, err := findParser()
	if err != nil {
		t.Fatalf("%v: make test-deps installs it", err)
	}
	cmd := exec.Command(parser, "--skip-kernel-load", "--skip-cache", "--stdout", "--features-file", features)
	cmd.Stdin = strings.NewReader(profile)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, warnings.String(), profile)
	}
	return out
}

// knownFeatures are those of kernels that the parser's package knows: such as Debian's, and such as Ubuntu's, which have more.
func knownFeatures(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/etc/apparmor.d/abi/*", "/usr/share/apparmor-features/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	if len(all) < 2 {
		t.Fatalf("the package apparmor has descriptions of these kernels only: %v", all)
	}
	return all
}

// TestDefaultProfileIsStrict: the default profile denies all that containerd's denies. Both are compiled, and their automata are followed
// side by side, so it holds for all paths, and for all that is asked of mounts, signals, traces, sockets.
func TestDefaultProfileIsStrict(t *testing.T) {
	theirs, err := peer.DumpDefaultProfile(defaultProfileName)
	if err != nil {
		t.Fatal(err)
	}
	all := func(accept uint32) uint32 { return accept }
	for _, features := range knownFeatures(t) {
		_, err := os.Stat(policyABI)
		paths, others := automata(t, compile(t, defaultProfile("", err == nil), features))
		theirPaths, theirOthers := automata(t, compile(t, theirs, features))
		if what, more := paths.allowsMore(theirPaths, pathPermissions); more != 0 {
			t.Errorf("%s: the path %q is allowed %#x more than by containerd", features, what, more)
		}
		if what, more := others.allowsMore(theirOthers, all); more != 0 {
			t.Errorf("%s: the request %q is allowed %#x more than by containerd", features, what, more)
		}
		// The proof would see it.
		loose := strings.ReplaceAll(defaultProfile("", err == nil), "  deny /sys/fs/", "  deny /nowhere/")
		loosePaths, _ := automata(t, compile(t, loose, features))
		if what, more := loosePaths.allowsMore(theirPaths, pathPermissions); more == 0 || !strings.HasPrefix(string(what), "/sys/fs/") {
			t.Errorf("%s: without a rule of its own /sys/fs is allowed %q, %#x", features, what, more)
		}
		loose = strings.ReplaceAll(defaultProfile("", err == nil), "  deny mount,", "  mount,")
		_, looseOthers := automata(t, compile(t, loose, features))
		if _, more := looseOthers.allowsMore(theirOthers, all); more == 0 {
			t.Errorf("%s: mounts that are allowed are not found", features)
		}
	}
}

// TestDefaultProfile: what it comes to for paths that matter.
func TestDefaultProfile(t *testing.T) {
	const look, use = uint32(mayRead), uint32(mayRead | mayWrite | mayAppend)
	features := knownFeatures(t)[0]
	for _, self := range []string{"", "unconfined", "/usr/bin/monopod (enforce)\n", "odd\"name (enforce)"} {
		paths, _ := automata(t, compile(t, defaultProfile(self, false), features))
		for p, want := range map[string]uint32{
			"/etc/passwd": use, "/tmp/a b": use, "/dev/null": use, "/proc/1/attr/current": use, "/proc/12345/oom_score_adj": use, "/proc/7/task/8/comm": use,
			"/proc/sys/kernel/shmmax": use, "/proc/sys/kernel/shm_rmid_forced": use, "/sys/fs/cgroup/memory.max": use, "/sys/fs/cgroup/a/cgroup.procs": use,
			"/proc/meminfo": look, "/proc/uptime": look, "/proc/mtrr": look, "/proc/scsi/scsi": look, "/proc/sysvipc/shm": look, "/proc/irq/1/smp_affinity": look,
			"/proc/acpi/wakeup": look, "/proc/driver/x": look, "/proc/bus/pci/00/00.0": look, "/proc/fs/xfs/stat": look,
			"/proc/sys/vm/overcommit_memory": look, "/proc/sys/net/ipv4/ip_forward": look, "/proc/sys/fs/binfmt_misc/register": look, "/proc/sys/user/max_user_namespaces": look,
			"/proc/sys/kernel/core_pattern": look, "/proc/sys/kernel/modprobe": look, "/proc/sys/kernel/sysrq": look, "/proc/sys/kernel/sem": look, "/proc/sys/kernel/s": look,
			"/proc/sys/kernel/random/uuid": look, "/proc/sys/kernel/usermodehelper/bset": look, "/proc/sys/kernel/yama/ptrace_scope": look,
			"/sys/power/state": look, "/sys/class/net/eth0/mtu": look, "/sys/module/a/parameters/b": look, "/sys/fs/bpf/prog": look, "/sys/fs/ext4/a": look, "/sys/fs/c": look,
			"/sys/block/sda/queue/scheduler": look, "/sys/kernel/uevent_helper": look, "/sys/devices/system/cpu/cpu0/online": look,
			"/proc/kcore": 0, "/proc/sysrq-trigger": 0, "/sys/firmware/efi/vars": 0, "/sys/kernel/security/apparmor/.load": 0, "/sys/kernel/debug/sched": 0,
			"/sys/kernel/tracing/kprobe_events": 0, "/sys/devices/virtual/powercap/intel-rapl/energy_uj": 0,
		} {
			if got := paths.path(p) & use; got != want {
				t.Errorf("self %q: %s may be used as %#x, want %#x", self, p, got, want)
			}
		}
	}
	if !strings.Contains(defaultProfile("/usr/bin/monopod (enforce)\n", false), `signal (receive) peer="/usr/bin/monopod",`) {
		t.Error("a confined Monopod cannot stop its containers")
	}
}
