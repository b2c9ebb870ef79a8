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

// TestHostileStrings: each string of CRI that a user or an image writes, and a kubelet only passes on, is a path that leads up, an absolute one, a line's end with
// another line behind it, a NUL with another string behind it, or very long. Where such a string is refused nothing is asserted of it.
//
// The attacker would have won if a folder of the host had other entries afterwards; if a file that the runtime writes for pods had a line that is not
// its own; if a program had an argument or a variable that nobody gave it; or if the node were not usable any more.
func TestHostileStrings(t *testing.T) {
	outside := t.TempDir()
	up := strings.Repeat("../", 20) + strings.TrimPrefix(outside, "/") + "/made"
	words := []string{up, outside + "/made", "a/" + up, "x\nevil=1", "x\nnameserver 6.6.6.6\nevil", "6.6.6.6 evil\n", "x\x00evil=1", "..", ".", "/", "-rf", "$(touch " + outside + "/made)",
		"%s%n", strings.Repeat("a", 300), strings.Repeat("a", 70_000)}
	const image = "localhost/escape/strings:1"
	hostile := []ociarchive.Image{hostileImage(t, image, nil, func(c *ocispec.ImageConfig) {
		c.User, c.WorkingDir, c.StopSignal = "0\n0", up, "SIGKILL\nx"
		c.Labels = map[string]string{up: up, "x\ny": "z"}
		c.Env = append(c.Env, "A=1\nevil=1", "=", "B")
		c.Volumes = map[string]struct{}{up: {}, outside: {}}
	})}
	mostlyNative(t, hostile, func(n *node) {
		before := namesIn(n.T, outside)
		n.hostileSandboxes(words)
		n.hostileContainers(words, image)
		if now := namesIn(n.T, outside); !slices.Equal(now, before) {
			n.Errorf("the host's folder had %q and has %q", before, now)
		}
		n.pod(nil).useful("afterwards")
	})
}

// hostileSandboxes gives each string to each field of a sandbox that takes one.
func (n *node) hostileSandboxes(words []string) {
	n.Helper()
	fields := map[string]func(c *cri.PodSandboxConfig, word string){
		"name":      func(c *cri.PodSandboxConfig, w string) { c.Metadata.Name = w },
		"namespace": func(c *cri.PodSandboxConfig, w string) { c.Metadata.Namespace = w },
		"uid":       func(c *cri.PodSandboxConfig, w string) { c.Metadata.Uid = w },
		"hostname":  func(c *cri.PodSandboxConfig, w string) { c.Hostname = w },
		"labels": func(c *cri.PodSandboxConfig, w string) {
			c.Labels = map[string]string{w: w, "io.kubernetes.pod.uid": w}
		},
		"annotations":  func(c *cri.PodSandboxConfig, w string) { c.Annotations = map[string]string{w: w} },
		"dns servers":  func(c *cri.PodSandboxConfig, w string) { c.DnsConfig = &cri.DNSConfig{Servers: []string{w}} },
		"dns searches": func(c *cri.PodSandboxConfig, w string) { c.DnsConfig = &cri.DNSConfig{Searches: []string{w}} },
		"dns options":  func(c *cri.PodSandboxConfig, w string) { c.DnsConfig = &cri.DNSConfig{Options: []string{w}} },
		"sysctl": func(c *cri.PodSandboxConfig, w string) {
			c.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward" + w: w}
		},
		"host_ip": func(c *cri.PodSandboxConfig, w string) {
			c.PortMappings = []*cri.PortMapping{{ContainerPort: 80, HostPort: 31780, HostIp: w}}
		},
	}
	for field, set := range fields {
		for _, word := range words {
			p, err := n.tryPod(func(c *cri.PodSandboxConfig) { set(c, word) })
			if err != nil {
				continue
			}
			if field == "dns servers" || field == "dns searches" || field == "dns options" || field == "hostname" {
				n.wantNoEvilLine(field, p.output(shell("cat /etc/resolv.conf /etc/hosts /etc/hostname")))
			}
			_, err = n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
			n.check(err)
		}
	}
}

// wantNoEvilLine fails when a string has become a line of its own.
func (n *node) wantNoEvilLine(field, text string) {
	n.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "evil") || strings.HasPrefix(line, "nameserver 6.6.6.6") || strings.HasPrefix(line, "6.6.6.6") {
			n.Errorf("%s: a file of the container has the line %q", field, line)
		}
	}
}

// hostileContainers gives each string to each field of a container that takes one, and to the calls about it.
func (n *node) hostileContainers(words []string, image string) {
	n.Helper()
	volume := n.place()
	n.check(os.WriteFile(filepath.Join(volume, "file"), []byte("x"), 0o644))
	fields := map[string]func(c *cri.ContainerConfig, word string){
		"command":        func(c *cri.ContainerConfig, w string) { c.Command = append(c.Command, w) },
		"args":           func(c *cri.ContainerConfig, w string) { c.Args = []string{w} },
		"working_dir":    func(c *cri.ContainerConfig, w string) { c.WorkingDir = w },
		"envs":           func(c *cri.ContainerConfig, w string) { c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte(w)}} },
		"env key":        func(c *cri.ContainerConfig, w string) { c.Envs = []*cri.KeyValue{{Key: w, Value: []byte("1")}} },
		"image":          func(c *cri.ContainerConfig, w string) { c.Image.Image = w },
		"image config":   func(c *cri.ContainerConfig, w string) { c.Image.Image = image },
		"log_path":       func(c *cri.ContainerConfig, w string) { c.LogPath = w },
		"username":       func(c *cri.ContainerConfig, w string) { c.Linux.SecurityContext.RunAsUsername = w },
		"name":           func(c *cri.ContainerConfig, w string) { c.Metadata.Name = w },
		"labels":         func(c *cri.ContainerConfig, w string) { c.Labels = map[string]string{w: w} },
		"annotations":    func(c *cri.ContainerConfig, w string) { c.Annotations = map[string]string{w: w} },
		"container_path": func(c *cri.ContainerConfig, w string) { mounted(c, volume, w) },
		"image_sub_path": func(c *cri.ContainerConfig, w string) {
			c.Mounts = []*cri.Mount{{ContainerPath: "/m", Image: &cri.ImageSpec{Image: base}, ImageSubPath: w, Readonly: true}}
		},
		"device path": func(c *cri.ContainerConfig, w string) {
			c.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: w, Permissions: "rw"}}
		},
		"masked_paths": func(c *cri.ContainerConfig, w string) { c.Linux.SecurityContext.MaskedPaths = []string{w} },
	}
	p := n.pod(nil)
	for field, set := range fields {
		for i, word := range words {
			if short() && n.engine == "runc" && (i+len(field))%5 != 0 {
				continue // what a string may be is decided before an engine is asked
			}
			cfg := shell("tr '\\0' '\\n' < /proc/self/environ | grep ^evil=1; exit 0")
			cfg.Metadata = &cri.ContainerMetadata{Name: "c"}
			cfg.LogPath = "c.log"
			set(cfg, word)
			c := p.create(cfg)
			c.start()
			if c.err == nil {
				c.wait()
				if field == "envs" && !strings.Contains(word, "\n") || field != "envs" && field != "env key" && field != "image config" {
					n.wantNoEvilLine(field, c.printed())
				}
			}
			c.stop()
		}
	}
	c := p.launch(shell(sleeper))
	for _, word := range words {
		_, _ = c.tryExec(10, word)
		_, _ = c.tryExec(10, "echo", word)
		_, _ = n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: word})
		_, _ = n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: word})
		_, _ = n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: word})
		_, _ = n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: word})
	}
	if got := c.exec("echo", "fine"); got != "fine" {
		n.Errorf("a command afterwards printed %q", got)
	}
}
