package storage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/apitest"
)

// block has a claim want a block device.
func block(c *corev1.PersistentVolumeClaim) {
	mode := corev1.PersistentVolumeBlock
	c.Spec.VolumeMode = &mode
}

// onDisk has the volumes lie on a small disk, and takes them off the machine at the end.
func (w *world) onDisk() {
	w.Helper()
	if os.Geteuid() != 0 {
		w.Skip("needs root: it makes block devices")
	}
	disk := w.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=64m"); err != nil {
		w.Fatal(err)
	}
	w.dir = filepath.Join(disk, "volumes")
	w.Cleanup(func() {
		p, err := storage.New(storage.Config{Dir: w.dir, NodeName: node})
		if err == nil {
			err = p.Detach(context.Background())
		}
		if err == nil {
			err = mount.UnmountBelow(disk)
		}
		if err != nil {
			w.Error(err)
		}
	})
}

// TestAGrowthThatFailsIsTakenBack: a claim that wanted more than there is gets what it wants then.
func TestAGrowthThatFailsIsTakenBack(t *testing.T) {
	w := &world{API: apitest.Start(t)}
	w.onDisk()
	w.run()
	w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	v := w.provisioned(w.claim("c", block))
	w.bound("c", v)
	apitest.Patch(w.API, claims, "c", `{"spec":{"resources":{"requests":{"storage":"63Mi"}}}}`)
	if m := w.event("c", "VolumeResizeFailed"); !strings.Contains(m, "more are to be reserved") {
		t.Errorf("the event says %q", m)
	}
	apitest.Patch(w.API, claims, "c", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
	apitest.Become(w.API, claimsOf, namespace, claims, "c", "as large as it wants", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().String() == "32Mi"
	}, func(c *corev1.PersistentVolumeClaim) string { return c.Status.String() })
	if info, err := os.Stat(filepath.Join(w.dir, v.Name, "image")); err != nil || info.Size() != 32<<20 {
		t.Errorf("the image is %v, %v", info, err)
	}
}

// TestAWrittenBlockDeviceIsNotUndone: what a pod has written to a volume outlives the loss of its claim and PersistentVolume, though its record says that it was begun only.
func TestAWrittenBlockDeviceIsNotUndone(t *testing.T) {
	w := &world{API: apitest.Start(t)}
	w.onDisk()
	for _, written := range []bool{true, false} {
		wait, _ := w.start("storage/ready/before")
		w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
		c := w.claim(map[bool]string{true: "written", false: "blank"}[written], block)
		v := w.provisioned(c)
		wait()
		if written {
			if err := os.WriteFile(v.Spec.Local.Path, []byte("x"), 0); err != nil {
				t.Fatal(err)
			}
		}
		apitest.Patch(w.API, w.Client.CoreV1().PersistentVolumes(), v.Name, `{"metadata":{"finalizers":null}}`)
		apitest.Patch(w.API, w.Client.CoreV1().PersistentVolumeClaims(namespace), c.Name, `{"metadata":{"finalizers":null}}`)
		for _, err := range []error{
			w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}),
			w.Client.CoreV1().PersistentVolumes().Delete(t.Context(), v.Name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.AwaitGone(claimsOf, namespace, c.Name)
		w.AwaitGone(volumesOf, "", v.Name)
		_, kill := w.start("")
		w.provisioned(w.claim(c.Name + "-next"))
		// The next one is ready as well, so that it is not at what it does that the second round is killed.
		w.until("a written one is ready, a blank one gone", func() bool { return exists(filepath.Join(w.dir, v.Name)) == written && w.ready() },
			func() string { return w.record(v.Name) })
		kill()
		if is, err := os.ReadFile(filepath.Join(w.dir, v.Name, "image")); written && (err != nil || is[0] != 'x') {
			t.Errorf("the volume has not what was written: %v", err)
		}
	}
}
