package escape

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// fakeProc are files as a runtime reads and writes them in /proc, but ordinary ones of the attacker's: what is written to them confines nobody.
var fakeProc = []string{"self/attr/current", "self/attr/exec", "self/attr/apparmor/exec", "self/attr/keycreate", "thread-self/attr/exec", "self/oom_score_adj", "self/loginuid",
	"self/setgroups", "self/uid_map", "self/gid_map", "self/status", "self/mountinfo", "self/cgroup", "sys/kernel/hostname", "sys/kernel/domainname", "sys/net/ipv4/ip_forward",
	"sys/net/ipv4/ping_group_range", "sys/kernel/cap_last_cap", "1/attr/exec", "1/oom_score_adj", "keys", "kcore"}

// makeFakeProc puts them below a directory of the host.
func (n *node) makeFakeProc(dir string) {
	n.Helper()
	for _, name := range fakeProc {
		n.folder(dir, filepath.Dir(name))
		n.check(os.WriteFile(filepath.Join(dir, name), []byte("fake"), 0o666))
	}
}

// wantUntouched fails when something of the fake has been written.
func (n *node) wantUntouched(dir string) {
	n.Helper()
	for _, name := range fakeProc {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != "fake" {
			n.Errorf("the runtime has written %q to the attacker's %s, %v", raw, name, err)
		}
	}
}

// confined tells how a process is confined: by lines of its status, and AppArmor's or SELinux's label where the kernel has them.
const confined = "grep -E '^(Seccomp|NoNewPrivs|CapBnd|CapEff):' /proc/self/status; cat /proc/self/attr/current 2>&- || true"

// asKubelets is a container that is confined as usual, with the default seccomp profile, and prints what shows it.
func asKubelets(script string) *cri.ContainerConfig {
	cfg := shell(script)
	cfg.Linux.SecurityContext.NoNewPrivs = true
	cfg.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	return cfg
}

// wantProc fails when a container that has started has no procfs of its own at /proc, is less confined than the same container of an
// ordinary image, or has something unmasked.
func (c *container) wantProc(ordinary string) {
	c.Helper()
	at := slices.IndexFunc(c.mountsOf(), func(m mount) bool { return m.point == "/proc" && m.fsType == "proc" && m.root == "/" })
	if at < 0 {
		c.Errorf("there is no procfs at the container's /proc: %v", c.mountsOf())
		return
	}
	c.wantMasked(maskedPaths...)
	if now := c.exec("sh", "-c", confined); now != ordinary {
		c.Errorf("the container is confined as\n%s\nan ordinary one as\n%s", now, ordinary)
	}
	for _, path := range []string{corePattern, "/proc/sysrq-trigger", "/proc/sys/kernel/panic"} {
		if resp, err := c.tryExec(10, "sh", "-c", "echo x > "+path); err == nil && resp.GetExitCode() == 0 {
			c.Errorf("the container has written to %s", path)
		}
	}
}

// TestCVE2019_16884: a mount hides /proc, or parts of it, so that what the runtime writes there goes to files of the attacker's: the label of AppArmor or SELinux with which the program is confined, and the masks. The mount is the image's (VOLUME /proc), or the pod's.
//
// The attacker would have won if the container ran without a procfs of its own, with less confinement than any other one, or if his files
// had been written.
func TestCVE2019_16884(t *testing.T) {
	const volume = "localhost/escape/procvolume:1"
	var fake ociarchive.Layer
	for _, name := range fakeProc {
		fake = append(fake, ociarchive.File{Path: "proc/" + name, Data: []byte("fake"), Mode: 0o666})
	}
	hostile := hostileImage(t, volume, fake, func(c *ocispec.ImageConfig) {
		c.Volumes = map[string]struct{}{"/proc": {}, "/proc/self": {}, "/proc/sys": {}, "/sys": {}}
	})
	onEachEngine(t, []ociarchive.Image{hostile}, func(n *node) {
		n.unchanged(corePattern)
		p := n.pod(nil)
		ordinary := p.launch(asKubelets(sleeper)).exec("sh", "-c", confined)
		p.launch(of(volume, asKubelets(sleeper))).wantProc(ordinary)
		for _, at := range []string{"/proc", "/proc/", "/proc/.", "/../proc", "/proc/self", "/proc/self/attr", "/proc/thread-self/attr", "/proc/1/attr", "/proc/sys/kernel"} {
			dir := n.place()
			n.makeFakeProc(dir)
			c := p.try(mounted(asKubelets(sleeper), dir, at))
			switch {
			case c.err != nil: // it is refused
			case strings.Trim(filepath.Clean(at), "/") == "proc":
				// The pod's own decision, if it is one that is taken at all: then nothing in it may have been trusted.
				n.wantConfinedBeside(c, ordinary)
			default:
				c.wantProc(ordinary)
			}
			n.wantUntouched(dir)
			c.stop()
		}
	})
}

// wantConfinedBeside looks at a container's confinement from the host, when its own /proc cannot tell it.
func (n *node) wantConfinedBeside(c *container, ordinary string) {
	n.Helper()
	dir := filepath.Join("/proc", itoa(c.process()))
	raw, err := os.ReadFile(dir + "/status")
	n.check(err)
	label, _ := os.ReadFile(dir + "/attr/current") // a kernel without labels has none
	raw = append(raw, label...)
	for line := range strings.Lines(ordinary) {
		if !strings.Contains(string(raw), strings.TrimSpace(line)) {
			n.Errorf("the container should have %q:\n%s", line, raw)
		}
	}
}

// procLinks are images whose /proc or /sys is a link.
func procLinks(t *testing.T) (names []string, all []ociarchive.Image) {
	for name, layer := range map[string]ociarchive.Layer{
		"procabs":   {{Path: "proc", Symlink: "/fake"}, {Path: "fake", Dir: true}},
		"procvol":   {{Path: "proc", Symlink: "/shared/fake"}, {Path: "shared", Dir: true}},
		"procnone":  {{Path: "proc", Symlink: "/nothing/there"}},
		"procself":  {{Path: "proc", Symlink: "proc"}},
		"procup":    {{Path: "proc", Symlink: "../../../../../../proc"}},
		"sysproc":   {{Path: "sys", Symlink: "/proc"}},
		"procsys":   {{Path: "proc", Symlink: "/sys"}},
		"firmware":  {{Path: "sys", Symlink: "/proc/sys"}},
		"shmproc":   {{Path: "proc", Symlink: "/dev/shm"}},
		"tmpproc":   {{Path: "proc", Symlink: "tmp/proc"}, {Path: "tmp/proc", Dir: true}},
		"procchain": {{Path: "proc", Symlink: "/a"}, {Path: "a", Symlink: "/shared/fake"}, {Path: "shared", Dir: true}},
	} {
		name = "localhost/escape/" + name + ":1"
		names = append(names, name)
		all = append(all, hostileImage(t, name, layer, nil))
	}
	slices.Sort(names)
	return names, all
}

// TestCVE2023_27561 and CVE-2023-28642: an image whose /proc, or /sys, is a link, also into a volume that the attacker shares with the new
// container. procfs would be mounted elsewhere, and masks, read-only paths and AppArmor's label applied to the attacker's files.
//
// The attacker would have won if the container ran less confined than any other one, with something unmasked, or if his files had been written.
func TestCVE2023_27561(t *testing.T) {
	names, all := procLinks(t)
	onEachEngine(t, all, func(n *node) {
		n.unchanged(corePattern)
		p := n.pod(nil)
		ordinary := p.launch(asKubelets(sleeper)).exec("sh", "-c", confined)
		shared := n.place()
		n.makeFakeProc(filepath.Join(shared, "fake"))
		for _, name := range names {
			c := p.try(mounted(of(name, asKubelets(sleeper)), shared, "/shared"))
			if c.err == nil {
				c.wantProc(ordinary)
			}
			n.wantUntouched(filepath.Join(shared, "fake"))
			c.stop()
		}
	})
}

// TestCVE2025_52881: what the runtime writes to files of /proc (labels, the OOM score, sysctls) is led to another file of it, by a /proc that is the
// attacker's for a moment: /sysrq-trigger crashes the host, core_pattern runs a program on it. The image's /proc is a link into a volume in which a
// folder and links to the host's files change places.
//
// The attacker would have won if his files had been written, the host's core_pattern had changed, or the container ran less confined.
func TestCVE2025_52881(t *testing.T) {
	names, all := procLinks(t)
	onEachEngine(t, all, func(n *node) {
		n.unchanged(corePattern, "/proc/sys/kernel/hostname", "/proc/sys/kernel/panic")
		ordinary := n.pod(nil).launch(asKubelets(sleeper)).exec("sh", "-c", confined)
		shared := n.place()
		n.makeFakeProc(filepath.Join(shared, "fake"))
		target := n.folder(shared, "target")
		for _, name := range fakeProc {
			n.folder(target, filepath.Dir(name))
			n.link(corePattern, filepath.Join(target, name))
		}
		n.pod(nil).exchanging(shared, "fake", "target")
		for range rounds(10) {
			p := n.pod(func(c *cri.PodSandboxConfig) {
				c.Linux.Sysctls = map[string]string{"kernel.domainname": "|/bin/evil", "net.ipv4.ping_group_range": "0 5"}
			})
			for _, name := range names {
				cfg := mounted(of(name, asKubelets(sleeper)), shared, "/shared")
				cfg.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: 500}
				c := p.try(cfg)
				if c.err == nil {
					c.wantProc(ordinary)
				}
				c.stop()
			}
		}
		n.removeAll()
		fake := filepath.Join(shared, "fake") // one of the two has the files now
		if st, err := os.Lstat(filepath.Join(fake, fakeProc[0])); err == nil && st.Mode()&os.ModeSymlink != 0 {
			fake = target
		}
		n.wantUntouched(fake)
	})
}

// TestCVE2022_0811: a sysctl that a pod may set carries another one, which it may not: by a "+", a line's end, or a path that leads up.
//
// The attacker would have won if the host's core_pattern, or another of its values, had changed.
func TestCVE2022_0811(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		n.unchanged(corePattern, "/proc/sys/kernel/panic", "/proc/sys/vm/panic_on_oom")
		const evil = "|/bin/evil #"
		for _, sysctls := range []map[string]string{
			{"kernel.shm_rmid_forced": "1+kernel.core_pattern=" + evil},
			{"kernel.shm_rmid_forced": "1\nkernel.core_pattern=" + evil},
			{"kernel.shm_rmid_forced=1+kernel.core_pattern": evil},
			{"kernel.core_pattern": evil},
			{"kernel/core_pattern": evil},
			{"net.ipv4/../../kernel/core_pattern": evil},
			{"net/../kernel/core_pattern": evil},
			{"net.ipv4.ip_forward/../../../kernel/core_pattern": evil},
			{"kernel.shm/../core_pattern": evil},
			{"fs.mqueue./../../kernel/core_pattern": evil},
			{"kernel.sem": "1 1 1 1", "kernel.panic": "7"},
			{"vm.panic_on_oom": "2"},
			{"net.\x00.ipv4": "1"},
		} {
			p, err := n.tryPod(func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = sysctls })
			if err == nil {
				// What was taken may have been taken for what it says, in the pod's own namespaces.
				n.Logf("%q is taken", sysctls)
				p.try(shell("true")).stop()
			}
		}
		if raw, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err != nil || strings.Contains(string(raw), "evil") {
			n.Errorf("%q, %v", raw, err)
		}
	})
}
