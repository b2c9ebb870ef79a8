package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// loadVolumes loads an image that declares volumes.
func (n *node) loadVolumes() string {
	n.Helper()
	img, err := images.Busybox("docker.io/library/volumes:latest")
	n.check(err)
	img.Layers = append(img.Layers[:len(img.Layers):len(img.Layers)], ociarchive.Layer{
		{Path: "srv/data", Dir: true, Mode: 0o750, UID: 1000, GID: 1000}, {Path: "srv/data/seed", Data: []byte("seed\n"), Mode: 0o640, UID: 1000, GID: 1000}, {Path: "srv/data/link", Symlink: "/etc/hostname"},
		{Path: "var/run", Symlink: "/nowhere"}, {Path: "way", Symlink: "/srv/data"}, {Path: "kernel", Symlink: "/proc/self"}, {Path: "loop", Symlink: "loop"},
		{Path: "up", Symlink: "../../../../../../../.." + n.dir}, {Path: "out", Symlink: n.dir}, {Path: "file", Data: []byte("x")},
	})
	img.Config.Env = append([]string{}, img.Config.Env...)
	img.Config.Volumes = map[string]struct{}{}
	for _, v := range []string{"/srv/data", "/srv/new/dir", "/kernel", "/proc/sys", "/sys/fs/cgroup", "/dev/shm", "/loop", "/up", "/out", "/file", "/file/x", "/", "rel/../relative", "/etc/hosts", "/given", "/ro/below"} {
		img.Config.Volumes[v] = struct{}{}
	}
	archive := filepath.Join(n.dir, "volumes.tar")
	n.check(images.WriteArchive(archive, img))
	f, err := os.Open(archive)
	n.check(err)
	defer f.Close()
	_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
	n.check(err)
	return img.Name
}

// TestDeclaredVolumes: what an image declares a volume (VOLUME) is writable by who owns it there, also with a read-only root, one of each container, and
// nothing of the host.
func TestDeclaredVolumes(t *testing.T) {
	n := newNode(t)
	name := n.loadVolumes()
	given := filepath.Join(n.dir, "given")
	n.check(os.Mkdir(given, 0o755))
	n.check(os.WriteFile(filepath.Join(given, "mine"), []byte("mine\n"), 0o644))
	container := func(c string, mounts ...*cri.Mount) *cri.ContainerConfig {
		cfg := shell(c, `cat /srv/data/seed; stat -c '%a %u %g' /srv/data /srv/data/seed /srv/new/dir; readlink /srv/data/link
			touch /srv/data/x && ls /srv/data | tr '\n' ' '; touch /root/x 2>/dev/null || echo read-only; cat /given/mine; ls -a /up /out /relative 2>/dev/null | grep -c -v '^\.*$\|:$'
			id -u`)
		cfg.Image.Image = name
		cfg.Linux.SecurityContext.ReadonlyRootfs = true
		cfg.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
		cfg.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 1000}
		cfg.Mounts = append(mounts, &cri.Mount{HostPath: given, ContainerPath: "/given"}, &cri.Mount{HostPath: given, ContainerPath: "/ro", Readonly: true})
		return cfg
	}
	sb := n.run("volumes")
	for i := range 2 {
		got := n.output(sb, container(fmt.Sprint("c", i)))
		for _, want := range []string{"seed\n750 1000 1000\n640 1000 1000\n755 0 0\n/etc/hostname\nlink seed x read-only\nmine\n0\n"} {
			if !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q at its begin", got, want)
			}
		}
	}
	// A mount at the same place wins, by whichever name.
	if got := n.output(sb, container("c2", &cri.Mount{HostPath: given, ContainerPath: "/way"})); !strings.Contains(got, "can't open '/srv/data/seed'") || !strings.Contains(got, "\n755 0 0\n") {
		t.Errorf("the mount's place is the volume's: %q", got)
	}
	// It is counted, and goes with the container.
	cfg := container("c3")
	cfg.Command = []string{"sh", "-c", "head -c 3000000 /dev/urandom >/srv/data/x"}
	id := n.launch(sb, cfg)
	n.wait(id)
	n.eventually("the volume is counted", func() bool {
		resp, err := n.rt.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: id})
		n.check(err)
		return resp.GetStats().GetWritableLayer().GetUsedBytes().GetValue() > 3000000
	})
	n.remove(id)
	if left, _ := filepath.Glob(filepath.Join(n.dir, "*", "containers", id, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
