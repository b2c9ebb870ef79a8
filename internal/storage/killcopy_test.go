package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
)

// TestKilledWhileACopyIsMade: until there is a claim the next provisioner removes the copy, with its PersistentVolume; afterwards the claim has it. It can be asked for again.
func TestKilledWhileACopyIsMade(t *testing.T) {
	w := on(t, "")
	w.begun()
	w.has("source", "of the source")
	tar, err := os.Create(filepath.Join(t.TempDir(), "tar"))
	must(t, err)
	defer tar.Close()
	_, err = w.now.Copies().Export(t.Context(), storage.Source{Namespace: namespace, Claim: "source"}, tar)
	must(t, err)
	w.stop()
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	for _, point := range append(around("copy/record", "copy/data", "copy/volume", "copy/claim"), "storage/ready/before") {
		had := len(w.directories())
		c := strings.ReplaceAll(name(point), "/", "-")
		killed, _ := w.start(point, "import", c, tar.Name())
		killed()
		_, err := claims.Get(t.Context(), c, metav1.GetOptions{})
		made := err == nil
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if want := point == "storage/copy/claim/after" || point == "storage/ready/before"; made != want {
			t.Errorf("%s: a claim was made: %t", point, made)
		}
		_, kill := w.start("")
		if !made {
			w.until(point+": nothing of it is left", func() bool { return len(w.directories()) == had && len(w.volumesFor(c)) == 0 },
				func() string { return strings.Join(append(w.directories(), w.volumesFor(c)...), " ") })
			kill()
			_, kill = w.start("", "import", c, tar.Name())
			w.until(point+": it is made when it is asked for again", func() bool { _, err := claims.Get(t.Context(), c, metav1.GetOptions{}); return err == nil }, func() string { return "no claim" })
		}
		data := w.isBound(namespace, c)
		w.until(point+": it is whole", func() bool { return len(w.directories()) == had+1 && w.ready() }, func() string { return strings.Join(w.directories(), " ") })
		content(t, filepath.Join(data, "file"), "of the source")
		kill()
	}
}

// volumesFor are the PersistentVolumes that are kept for a claim.
func (w *world) volumesFor(claim string) (all []string) {
	w.Helper()
	list, err := w.Client.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
	must(w, err)
	for _, v := range list.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == claim {
			all = append(all, v.Name)
		}
	}
	return all
}

// TestKilledWhileACopyIsAbandoned: the next provisioner goes on with it.
func TestKilledWhileACopyIsAbandoned(t *testing.T) {
	w := on(t, "")
	w.begun()
	w.has("source", "x")
	tar, err := os.Create(filepath.Join(t.TempDir(), "tar"))
	must(t, err)
	defer tar.Close()
	_, err = w.now.Copies().Export(t.Context(), storage.Source{Namespace: namespace, Claim: "source"}, tar)
	must(t, err)
	w.stop()
	for _, point := range append(around("copy/delete", "deleting", "discard", "throw"), "storage/copy/released/before") {
		killed, _ := w.start("storage/copy/claim/before", "import", "c", tar.Name())
		killed()
		killed, _ = w.start(point)
		killed()
		_, kill := w.start("")
		w.until(point+": nothing of it is left", func() bool { return len(w.directories()) == 1 && len(w.volumesFor("c")) == 0 },
			func() string { return strings.Join(append(w.directories(), w.volumesFor("c")...), " ") })
		kill()
	}
}

// TestKilledWhileASnapshotIsTaken: what is not whole goes, a file system that was frozen is written to again, and what is being removed goes to its end. The claim has what it had.
func TestKilledWhileASnapshotIsTaken(t *testing.T) {
	w := on(t, "xfs")
	w.begun()
	image := plan.Class(false)
	image.Name, image.Parameters = "image", map[string]string{plan.IsolationParameter: "image"}
	_, err := w.Client.StorageV1().StorageClasses().Create(t.Context(), image, metav1.CreateOptions{})
	must(t, err)
	file := w.has("c", "old", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &image.Name })
	w.stop()
	taken := func() (all []string) {
		entries, err := os.ReadDir(filepath.Join(w.dir, ".snapshots"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	for _, point := range append([]string{"storage/snapshot/frozen"}, around("snapshot/record", "snapshot/take", "snapshot/ready")...) {
		killed, _ := w.start(point, "snapshot", "c", "s")
		killed()
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(file, []byte("old"), 0o640) }() // which waits while it is frozen
		whole := point == "storage/snapshot/ready/after"
		_, kill := w.start("")
		if err := <-written; err != nil {
			t.Errorf("%s: %v", point, err)
		}
		want := map[bool]string{true: "s", false: ""}[whole]
		w.until(point+": what is whole is there", func() bool { return strings.Join(taken(), " ") == want }, func() string { return strings.Join(taken(), " ") })
		content(t, file, "old")
		kill()
	}
	for _, point := range around("snapshot/remove") {
		killed, _ := w.start(point, "remove", "s")
		killed()
		if whole := point == "storage/snapshot/remove/before"; whole != (len(taken()) == 1) {
			t.Errorf("%s: there is %v", point, taken())
		}
	}
	content(t, file, "old")
}
