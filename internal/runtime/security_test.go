package runtime_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// procStatus reads one field of /proc/1/status from its text.
func procStatus(text, field string) string {
	m := regexp.MustCompile(`(?m)^` + field + `:\s*(.*)$`).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return strings.Join(strings.Fields(m[1]), " ")
}

func TestSecurityContext(t *testing.T) {
	n := newNode(t)
	sb := n.run("sec")
	profile := filepath.Join(n.dir, "seccomp.json")
	n.check(os.WriteFile(profile, []byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`), 0o600))
	const show = "cat /proc/1/status"
	for name, c := range map[string]struct {
		change func(*cri.LinuxContainerSecurityContext)
		script string
		want   func(t *testing.T, out string)
	}{
		"defaults": {func(*cri.LinuxContainerSecurityContext) {}, show, func(t *testing.T, out string) {
			if procStatus(out, "Uid") != "0 0 0 0" || procStatus(out, "NoNewPrivs") != "0" || procStatus(out, "CapEff") != "00000000a80425fb" {
				t.Error(out)
			}
		}},
		"user and groups": {func(sc *cri.LinuxContainerSecurityContext) {
			sc.RunAsUsername, sc.SupplementalGroups, sc.NoNewPrivs = "app", []int64{4242}, true
		}, show + "; id", func(t *testing.T, out string) {
			if procStatus(out, "Uid") != "1000 1000 1000 1000" || procStatus(out, "Gid") != "1000 1000 1000 1000" || procStatus(out, "NoNewPrivs") != "1" ||
				!strings.Contains(procStatus(out, "Groups"), "29") || !strings.Contains(procStatus(out, "Groups"), "4242") || procStatus(out, "CapEff") != strings.Repeat("0", 16) {
				t.Error(out)
			}
		}},
		"strict groups": {func(sc *cri.LinuxContainerSecurityContext) {
			sc.RunAsUser, sc.RunAsGroup = &cri.Int64Value{Value: 1000}, &cri.Int64Value{Value: 7}
			sc.SupplementalGroupsPolicy = cri.SupplementalGroupsPolicy_Strict
		}, show, func(t *testing.T, out string) {
			if procStatus(out, "Gid") != "7 7 7 7" || strings.Contains(procStatus(out, "Groups"), "29") {
				t.Error(out)
			}
		}},
		"capabilities": {func(sc *cri.LinuxContainerSecurityContext) {
			sc.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}}
		}, show, func(t *testing.T, out string) {
			if procStatus(out, "CapEff") != "0000000000000400" || procStatus(out, "CapBnd") != "0000000000000400" {
				t.Error(out)
			}
		}},
		"read-only root": {func(sc *cri.LinuxContainerSecurityContext) { sc.ReadonlyRootfs = true }, "touch /x 2>&1; touch /dev/shm/y && echo shm", func(t *testing.T, out string) {
			if !strings.Contains(out, "Read-only file system") || !strings.Contains(out, "shm") {
				t.Error(out)
			}
		}},
		"seccomp of the runtime": {func(sc *cri.LinuxContainerSecurityContext) {
			sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		}, show, func(t *testing.T, out string) {
			if procStatus(out, "Seccomp") != "2" {
				t.Error(out)
			}
		}},
		"seccomp of a file": {func(sc *cri.LinuxContainerSecurityContext) {
			sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: profile}
		}, "mkdir /tmp/d 2>&1; " + show, func(t *testing.T, out string) {
			if procStatus(out, "Seccomp") != "2" || !strings.Contains(out, "not permitted") {
				t.Error(out)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := shell("c", c.script)
			c.change(cfg.Linux.SecurityContext)
			c.want(t, n.output(sb, cfg))
		})
	}

	t.Run("privileged", func(t *testing.T) {
		pod := n.sandboxConfig("privileged")
		pod.Linux.SecurityContext.Privileged = true
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
		n.check(err)
		cfg := shell("c", "ls /dev; mount -t tmpfs none /tmp && echo mounted; "+show)
		cfg.Linux.SecurityContext.Privileged = true
		out := n.output(resp.GetPodSandboxId(), cfg)
		if !strings.Contains(out, "kmsg") || !strings.Contains(out, "mounted") || procStatus(out, "Seccomp") != "0" {
			t.Error(out)
		}
	})
	t.Run("the node's namespaces", func(t *testing.T) {
		pod := n.sandboxConfig("host")
		o := pod.Linux.SecurityContext.NamespaceOptions
		o.Network, o.Ipc, o.Pid = cri.NamespaceMode_NODE, cri.NamespaceMode_NODE, cri.NamespaceMode_NODE
		pod.Hostname = ""
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
		n.check(err)
		if ip := n.sandboxStatus(resp.GetPodSandboxId()).GetNetwork().GetIp(); ip != "" {
			t.Errorf("it has the address %s", ip)
		}
		cfg := shell("c", "for k in net ipc pid uts; do readlink /proc/self/ns/$k; done")
		cfg.Linux.SecurityContext.NamespaceOptions = o
		want := ""
		for _, k := range []string{"net", "ipc", "pid", "uts"} {
			link, err := os.Readlink("/proc/self/ns/" + k)
			n.check(err)
			want += link + "\n"
		}
		if out := n.output(resp.GetPodSandboxId(), cfg); out != strings.TrimSpace(want) {
			t.Errorf("namespaces %s, the node's are %s", out, want)
		}
	})
	t.Run("ports and ping take no capability", func(t *testing.T) {
		for want, sysctls := range map[string]map[string]string{
			"0 0 2147483647": nil, "1000 0 2147483647": {"net/ipv4/ip_unprivileged_port_start": "1000"}, "0 5 6": {"net.ipv4.ping_group_range": "5 6"},
		} {
			pod := n.sandboxConfig("ports" + strings.ReplaceAll(want, " ", "-"))
			pod.Linux.Sysctls = sysctls
			resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
			n.check(err)
			out := n.output(resp.GetPodSandboxId(), shell("c", "cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ping_group_range"))
			if got := strings.Join(strings.Fields(out), " "); got != want {
				t.Errorf("sysctls %v: %q, want %q", sysctls, got, want)
			}
		}
	})
	t.Run("sysctls and name resolution", func(t *testing.T) {
		pod := n.sandboxConfig("dns")
		pod.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "2000 3000", "kernel.shm_rmid_forced": "1", "net.ipv4.conf.eth0.rp_filter": "2",
			"net/ipv4/neigh/eth0/retrans_time_ms": "1200", "net.ipv4.conf.lo.rp_filter": "2"}
		pod.DnsConfig = &cri.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
		n.check(err)
		out := n.output(resp.GetPodSandboxId(), shell("c", "cd /proc/sys/net/ipv4; cat ip_local_port_range ../../kernel/shm_rmid_forced conf/eth0/rp_filter neigh/eth0/retrans_time_ms conf/lo/rp_filter /etc/resolv.conf"))
		if got := strings.Join(strings.Fields(out), " "); got != "2000 3000 1 2 1200 2 search a.example b.example nameserver 10.0.0.10 options ndots:5" {
			t.Error(got)
		}
	})
}

// TestHostileImage: what an image says leads nowhere out of it, and holds up nobody.
func TestHostileImage(t *testing.T) {
	n := newNode(t)
	sb := n.run("hostile")
	base, err := images.Busybox("docker.io/library/hostile:latest")
	n.check(err)
	for name, c := range map[string]struct {
		passwd ociarchive.File
		ok     bool
	}{
		"absolute link in the image": {ociarchive.File{Path: "etc/passwd", Symlink: "/etc/other"}, true},
		"link out of it":             {ociarchive.File{Path: "etc/passwd", Symlink: "../../../../../../../../etc/shadow"}, false},
		"link to itself":             {ociarchive.File{Path: "etc/passwd", Symlink: "passwd"}, false},
		"directory":                  {ociarchive.File{Path: "etc/passwd", Dir: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			layer := ociarchive.Layer{{Path: "etc/other", Data: []byte("special:x:77:78::/:/bin/sh\n")}, {Path: "etc/.wh.passwd"}}
			img := base
			img.Layers = append(img.Layers[:1:1], layer, ociarchive.Layer{c.passwd})
			archive := filepath.Join(n.dir, "hostile.tar")
			n.check(images.WriteArchive(archive, img))
			f, err := os.Open(archive)
			n.check(err)
			defer f.Close()
			_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
			n.check(err)
			cfg := shell("c", "id -u; id -g")
			cfg.Image.Image = img.Name
			cfg.Linux.SecurityContext.RunAsUsername = "special"
			if !c.ok {
				if id, err := n.tryCreate(sb, cfg); err == nil {
					t.Errorf("made %s", id)
				}
				return
			}
			if out := n.output(sb, cfg); out != "77\n78" {
				t.Error(out)
			}
		})
	}
}
