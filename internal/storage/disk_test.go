package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/storage"
)

// TestADiskThatIsNotMounted: nothing is made in its place, and what is on it is there when it comes.
func TestADiskThatIsNotMounted(t *testing.T) {
	w := begin(t)
	v := w.provisioned(w.claim("c"))
	w.event("c", "ProvisioningSucceeded") // so that it is recorded as ready
	w.stop()
	disk := w.dir + "-disk"
	if err := os.Rename(w.dir, disk); err != nil {
		t.Fatal(err)
	}
	w.run()
	d := w.claim("d")
	if m := w.event("d", "ProvisioningFailed"); !strings.Contains(m, "mount its disk") || !strings.Contains(m, v.Name) {
		t.Errorf("the event says %q", m)
	}
	w.event("c", "VolumeLost")
	if exists(w.dir) {
		t.Error("a volume was made where no disk is mounted")
	}
	if err := os.Rename(disk, w.dir); err != nil {
		t.Fatal(err)
	}
	w.provisioned(d)
	w.event("d", "ProvisioningSucceeded")
	if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.phase(v.Name, corev1.VolumeReleased)
	w.AwaitGone(volumesOf, "", v.Name)
	if exists(filepath.Join(w.dir, v.Name)) {
		t.Error("the directory of a volume that was released after its disk came is still there")
	}
}

// TestAFullDiskIsMadeEmptier: a claim that is deleted gives its room back.
func TestAFullDiskIsMadeEmptier(t *testing.T) {
	w := begin(t)
	w.stop()
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", w.dir, "tmpfs", 0, "size=32m,mode=700"); err != nil {
		t.Skip("needs to mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) })
	w.run()
	v := w.provisioned(w.claim("c"))
	w.event("c", "ProvisioningSucceeded")
	f, err := os.Create(filepath.Join(v.Spec.Local.Path, "f"))
	if err != nil {
		t.Fatal(err)
	}
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	f.Close()
	if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.phase(v.Name, corev1.VolumeReleased)
	w.AwaitGone(volumesOf, "", v.Name)
	if exists(filepath.Join(w.dir, v.Name)) {
		t.Error("the directory is still there")
	}
}

// TestADirectoryIsOneNodes: two nodes do not have it at a time, and none has what is another's.
func TestADirectoryIsOneNodes(t *testing.T) {
	dir := t.TempDir()
	record := func(name, node string) {
		t.Helper()
		text := `{"version":1,"name":"` + name + `","node":"` + node + `","phase":"creating","claim":{"namespace":"a","name":"` + name + `","uid":"1"},"size":1,"hold":"none"}`
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "volume.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record("old", "")
	record("mine", "n")
	record("others", "m")
	if all, err := storage.Claims(dir, "n"); err != nil || strings.Join(all, " ") != "a/mine a/old" {
		t.Errorf("the claims are %v, %v", all, err)
	}
	config := storage.Config{Dir: dir, NodeName: "n", Alone: true}
	p, err := storage.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storage.New(storage.Config{Dir: dir, NodeName: "m", Alone: true}); err == nil || !strings.Contains(err.Error(), "node n, process") {
		t.Errorf("a second node had the directory, or was told: %v", err)
	}
	p.Close()
	if p, err = storage.New(config); err != nil {
		t.Fatal(err)
	}
	if err := p.Clear(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.Close()
	for name, want := range map[string]bool{"old": false, "mine": false, "others": true, ".monopod": false, ".removing": false} {
		if exists(filepath.Join(dir, name)) != want {
			t.Errorf("%s: want it there: %t", name, want)
		}
	}
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.New(config); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a directory that others write to was taken, or: %v", err)
	}
}

// TestSnapshotsAndReset: they stay with the volumes, and are named and removed with them.
func TestSnapshotsAndReset(t *testing.T) {
	dir := t.TempDir()
	snapshot := func(name, node string) {
		t.Helper()
		at := filepath.Join(dir, ".snapshots", name)
		text := `{"version":1,"name":"` + name + `","node":"` + node + `","phase":"ready","claim":{"namespace":"a","name":"c","uid":"1"},"requested":"1Gi","size":1,"hold":"none"}`
		must(t, os.MkdirAll(filepath.Join(at, "data"), 0o700), os.WriteFile(filepath.Join(at, "snapshot.json"), []byte(text), 0o600))
	}
	snapshot("mine", "n")
	if all, err := storage.Claims(dir, "n"); err != nil || strings.Join(all, "; ") != "the snapshot mine of a/c" {
		t.Errorf("what would be removed is %q, %v", all, err)
	}
	p, err := storage.New(storage.Config{Dir: dir, NodeName: "n"})
	must(t, err, p.Clear(t.Context(), false))
	if !exists(filepath.Join(dir, ".snapshots", "mine", "data")) {
		t.Error("a snapshot went with a plain reset")
	}
	snapshot("others", "m")
	must(t, os.MkdirAll(filepath.Join(dir, ".snapshots", ".gone-x", "data"), 0o700))
	must(t, p.Clear(t.Context(), true))
	for name, want := range map[string]bool{"mine": false, ".gone-x": false, "others": true} {
		if exists(filepath.Join(dir, ".snapshots", name)) != want {
			t.Errorf("%s: want it there: %t", name, want)
		}
	}
	if told, err := p.Copies().Snapshots(t.Context()); err != nil || len(told) != 1 || told[0].Record.Name != "others" || told[0].Err == nil || len(p.Troubles(t.Context())) != 1 {
		t.Errorf("told is %+v, %v", told, err)
	}
	must(t, os.RemoveAll(filepath.Join(dir, ".snapshots", "others")), p.Clear(t.Context(), true))
	if exists(dir) {
		t.Error("the directory is there when nothing is in it")
	}
}
