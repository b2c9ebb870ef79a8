package volumes

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/agent/objects"
)

// blockClaims are claims whose volumes are block devices: of the claim "dev" of the kind local.
type blockClaims struct {
	claimed
	source v1.PersistentVolumeSource
}

func (b blockClaims) Get(ctx context.Context, n objects.Name) (runtime.Object, error) {
	if n.Kind != objects.Volume {
		return b.claimed.Get(ctx, n)
	}
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: v1.PersistentVolumeSpec{
		VolumeMode: new(v1.PersistentVolumeBlock), ClaimRef: &v1.ObjectReference{UID: "c"}, PersistentVolumeSource: b.source,
	}}, nil
}

// TestDevices: a container has a claim of volumeMode Block as the device node itself, and may only read what is to be read only.
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	node, link := filepath.Join(dir, "node"), filepath.Join(dir, "link")
	must(t, unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))), unix.Symlink("node", link))
	for name, source := range map[string]v1.PersistentVolumeSource{
		"local": {Local: &v1.LocalVolumeSource{Path: link}}, "hostPath": {HostPath: &v1.HostPathVolumeSource{Path: link}},
	} {
		m := manager(t, &someObjects{})
		m.cfg.Kinds.Objects = blockClaims{claimed{dir}, source}
		m = New(m.cfg)
		pod := podWith(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "dev"}},
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "dev", ReadOnly: true}})
		c := &pod.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "a", DevicePath: "/dev/x"}, {Name: "b", DevicePath: "dev/y"}}
		must(t, setUp(t.Context(), m, pod))
		got, err := m.Devices(pod, c)
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		if d := got[0]; d.HostPath != node || d.ContainerPath != "/dev/x" || d.Permissions != "mrw" {
			t.Errorf("%s: %v", name, d)
		}
		if d := got[1]; d.HostPath != node || d.ContainerPath != "/dev/y" || d.Permissions != "r" {
			t.Errorf("%s, read-only: %v", name, d)
		}
		c.VolumeMounts = []v1.VolumeMount{{Name: "a", MountPath: "/a"}}
		if _, err := m.Mounts(MountInput{Pod: pod, Container: c}); err == nil || !strings.Contains(err.Error(), "has volumeMode Block, but is specified in volumeMounts") {
			t.Errorf("%s: mounted with %v", name, err)
		}
	}
	m := manager(t, &someObjects{})
	pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "a", DevicePath: "/dev/x"}}
	must(t, setUp(t.Context(), m, pod))
	if _, err := m.Devices(pod, &pod.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "has volumeMode Filesystem") {
		t.Errorf("an emptyDir as a device: %v", err)
	}
}
