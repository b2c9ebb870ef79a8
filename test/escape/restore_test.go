package escape

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// TestCVE2024_8676: an image says that it is a checkpoint of a container, and of what the container had mounted: the host's folders. Who may make pods, and no
// pod with a host path, restores it.
//
// The attacker would have won if the container saw the host's secret, or had a mount that its pod did not ask for. Nothing is restored here: such an image is one
// like any other, and the path of an archive names none.
func TestCVE2024_8676(t *testing.T) {
	const image = "localhost/escape/checkpoint:1"
	dir, _ := hostDirectory(t, "canary")
	spec := fmt.Sprintf(`{"ociVersion": "1.0.0", "root": {"path": "rootfs"}, "process": {"args": ["cat", "/host/canary"], "cwd": "/"}, "mounts": [{"destination": "/host", "type": "bind", "source": %q, "options": ["rbind", "rw"]}],
		"annotations": {"io.kubernetes.cri-o.Volumes": "[{\"container_path\": \"/host\", \"host_path\": \"%s\"}]"}}`, dir, dir)
	layer := ociarchive.Layer{{Path: "spec.dump", Data: []byte(spec)}, {Path: "config.dump", Data: []byte(`{"id": "x", "name": "x", "rootfsImageRef": "` + base + `"}`)},
		{Path: "checkpoint", Dir: true}, {Path: "checkpoint/inventory.img", Data: []byte("x")}, {Path: "bind.mounts", Data: []byte(`["/host"]`)}}
	marks := map[string]string{"io.kubernetes.cri-o.annotations.checkpoint.name": "x", "org.criu.checkpoint.container.name": "x"}
	hostile := hostileImage(t, image, layer, func(c *ocispec.ImageConfig) { c.Labels = marks })
	onEachEngine(t, []ociarchive.Image{hostile}, func(n *node) {
		p := n.pod(func(c *cri.PodSandboxConfig) { c.Annotations = marks })
		ordinary := len(p.launch(shell(sleeper)).mountsOf())
		cfg := of(image, shell("cat /host/canary 2>/dev/null; echo ran; "+sleeper))
		cfg.Annotations = marks
		c := p.launch(cfg)
		c.says("ran")
		if out := c.printed(); out != "ran\n" {
			n.Errorf("the container says %q", out)
		}
		if all := c.mountsOf(); len(all) != ordinary {
			n.Errorf("the container has the mounts %v, an ordinary one %d", all, ordinary)
		}
		archive := filepath.Join(dir, "canary")
		if c := p.try(of(archive, shell("true"))); c.err == nil || !strings.Contains(c.err.Error(), archive) && status.Code(c.err) != codes.InvalidArgument && status.Code(c.err) != codes.NotFound {
			n.Errorf("a file of the host is taken for an image: %v", c.err)
		}
		if _, err := n.rt.CheckpointContainer(n.ctx, &cri.CheckpointContainerRequest{ContainerId: c.id, Location: filepath.Join(dir, "made")}); err == nil {
			n.Log("containers can be checkpointed: what is restored needs a test")
			n.Fail()
		}
	})
}
