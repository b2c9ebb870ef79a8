package storage_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/apitest"
)

// on is a world whose volumes lie on a new file system; quotas are on where it is btrfs. Claims are bound by the controller.
func on(t *testing.T, kind string) *world {
	t.Helper()
	w := &world{API: apitest.Start(t), dir: filepath.Join(t.TempDir(), "volumes")}
	if kind != "" {
		w.dir = filepath.Join(disk(t, kind), "volumes")
		t.Cleanup(w.off)
	}
	w.Control(catalog.ClaimProtection, catalog.VolumeProtection, catalog.VolumeBinding)
	return w
}

// disk is where a new file system is mounted.
func disk(t *testing.T, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skip("mkfs." + kind + " is not installed")
	}
	dir := t.TempDir()
	file, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	must(t, os.Mkdir(at, 0o700), os.WriteFile(file, nil, 0o600), os.Truncate(file, 512<<20))
	all := [][]string{{"mkfs." + kind, "-q", file}, {"mount", "-o", "loop", file, at}}
	if kind == "btrfs" {
		all = append(all, []string{"btrfs", "quota", "enable", at})
	}
	for _, c := range all {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}
	t.Cleanup(func() { must(t, mount.UnmountBelow(at)) })
	return at
}

// off takes the volumes off the machine.
func (w *world) off() {
	p, err := storage.New(storage.Config{Dir: w.dir, NodeName: node})
	if err == nil {
		err = p.Detach(context.Background())
	}
	if err != nil {
		w.Error(err)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// begun runs the provisioner, and waits until it acts.
func (w *world) begun() {
	w.Helper()
	w.run()
	w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	w.until("the provisioner knows the API", func() bool {
		return !errdefs.IsUnavailable(w.now.Copies().Ask())
	}, func() string { return "" })
}

// has is a claim that is bound, with a file in it.
func (w *world) has(name, content string, change ...func(*corev1.PersistentVolumeClaim)) (file string) {
	w.Helper()
	v := w.provisioned(w.claim(name, change...))
	w.isBound(namespace, name)
	w.event(name, "ProvisioningSucceeded") // so that it is recorded as ready
	file = filepath.Join(v.Spec.Local.Path, "file")
	must(w, os.WriteFile(file, []byte(content), 0o640), os.Chown(file, 1000, 2000))
	return file
}

// isBound waits for a claim to be bound, and returns where its volume is.
func (w *world) isBound(namespace, name string) (data string) {
	w.Helper()
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	apitest.Become(w.API, claimsOf, namespace, claims, name, "bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound },
		func(c *corev1.PersistentVolumeClaim) string { return c.Status.String() })
	c, err := claims.Get(w.Context(), name, metav1.GetOptions{})
	must(w, err)
	return filepath.Join(w.dir, c.Spec.VolumeName, "data")
}

// content is a file's, with its owner.
func content(t testing.TB, path, want string) {
	t.Helper()
	var st unix.Stat_t
	raw, err := os.ReadFile(path)
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err != nil || string(raw) != want || st.Uid != 1000 || st.Gid != 2000 || st.Mode&0o777 != 0o640 {
		t.Errorf("%s has %q of %d:%d %o, %v; want %q", path, raw, st.Uid, st.Gid, st.Mode, err, want)
	}
}

func (w *world) namespace(name string) {
	w.Helper()
	_, err := w.Client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(w, err)
}

// TestSnapshots: what a claim had is had by a new claim of another namespace, and nothing of the first is changed. A snapshot outlives its claim.
func TestSnapshots(t *testing.T) {
	for _, kind := range []string{"btrfs", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			w := on(t, kind)
			w.begun()
			ctx, source := t.Context(), storage.Source{Namespace: namespace, Claim: "c"}
			file := w.has("c", "old")
			r, err := w.now.Copies().Snapshot(ctx, source, "s1")
			must(t, err)
			if r.Claim.String() != "default/c" || r.Requested.String() != "16Mi" || r.AtOnce != (kind == "btrfs") {
				t.Errorf("the snapshot is %+v", r)
			}
			must(t, os.WriteFile(file, []byte("new"), 0o640))
			w.namespace("other")
			size := resource.MustParse("32Mi")
			for _, c := range []struct {
				name, snapshot string
				target         storage.Target
				is             func(error) bool
				says           string
			}{
				{"no snapshot", "s2", storage.Target{Namespace: "other", Claim: "d"}, errdefs.IsNotFound, "snapshot ls"},
				{"no name of a snapshot", "../s1", storage.Target{Namespace: "other", Claim: "d"}, errdefs.IsInvalidArgument, "lower case"},
				{"a claim that is there", "s1", storage.Target{Namespace: namespace, Claim: "c"}, errdefs.IsAlreadyExists, "stays as it is"},
				{"that claim, by default", "s1", storage.Target{}, errdefs.IsAlreadyExists, "stays as it is"},
				{"no namespace", "s1", storage.Target{Namespace: "none", Claim: "d"}, errdefs.IsNotFound, "create namespace"},
				{"no class", "s1", storage.Target{Namespace: "other", Claim: "d", Class: "gold"}, errdefs.IsNotFound, "--class"},
				{"no name of a claim", "s1", storage.Target{Namespace: "other", Claim: "D!"}, func(error) bool { return true }, "D!"},
				{"too small", "s1", storage.Target{Namespace: "other", Claim: "d", Size: ptr(resource.MustParse("1Mi"))}, errdefs.IsInvalidArgument, "--size"},
				{"larger than the disk", "s1", storage.Target{Namespace: "other", Claim: "d", Size: ptr(resource.MustParse("1Ti"))}, func(error) bool { return true }, "in all"},
			} {
				if _, err := w.now.Copies().Restore(ctx, c.snapshot, c.target); err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if all := w.directories(); len(all) != 1 {
				t.Errorf("after what was refused before anything was copied there is %v", all)
			}
			made, err := w.now.Copies().Restore(ctx, "s1", storage.Target{Namespace: "other", Claim: "d", Size: &size})
			must(t, err)
			data := w.isBound("other", "d")
			content(t, filepath.Join(data, "file"), "old")
			content(t, file, "new")
			if made.Volume != filepath.Base(filepath.Dir(data)) || made.Size != size.Value() {
				t.Errorf("made is %+v, and the claim has %s", made, data)
			}
			// It goes as any other, and the snapshot with neither of the two.
			must(t, w.Client.CoreV1().PersistentVolumeClaims("other").Delete(ctx, "d", metav1.DeleteOptions{}), w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "c", metav1.DeleteOptions{}))
			w.AwaitGone(volumesOf, "", made.Volume)
			w.AwaitGone(volumesOf, "", filepath.Base(filepath.Dir(filepath.Dir(file))))
			w.until("no directory is left", func() bool { return len(w.directories()) == 0 }, func() string { return strings.Join(w.directories(), " ") })
			told, err := w.now.Copies().Snapshots(ctx)
			if err != nil || len(told) != 1 || told[0].Used == nil || told[0].Err != nil {
				t.Fatalf("told is %+v, %v", told, err)
			}
			_, err = w.now.Copies().Restore(ctx, "s1", storage.Target{})
			must(t, err)
			content(t, filepath.Join(w.isBound(namespace, "c"), "file"), "old")
			must(t, w.now.Copies().RemoveSnapshot(ctx, "s1"))
			if exists(filepath.Join(w.dir, ".snapshots", "s1")) {
				t.Error("a snapshot that was removed is there")
			}
			content(t, filepath.Join(w.isBound(namespace, "c"), "file"), "old")
		})
	}
}

func ptr[T any](v T) *T { return &v }

// TestAnotherMachine: an archive makes the same of a claim on another node, of any kind of volume.
func TestAnotherMachine(t *testing.T) {
	from, to := on(t, "xfs"), on(t, "btrfs")
	for _, w := range []*world{from, to} {
		w.begun()
		image := plan.Class(false)
		image.Name, image.Parameters = "image", map[string]string{plan.IsolationParameter: "image"}
		image.VolumeBindingMode = ptr(storagev1.VolumeBindingImmediate)
		_, err := w.Client.StorageV1().StorageClasses().Create(t.Context(), image, metav1.CreateOptions{})
		must(t, err)
	}
	from.has("files", "of files")
	from.has("image", "of an image", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr("image") })
	device := from.provisioned(from.claim("device", block))
	from.isBound(namespace, "device")
	from.event("device", "ProvisioningSucceeded")
	written := bytes.Repeat([]byte("of a device."), 1000)
	d, err := os.OpenFile(device.Spec.Local.Path, os.O_WRONLY, 0)
	must(t, err)
	_, err = d.WriteAt(written, 5<<20)
	must(t, err, d.Close())
	var raw bytes.Buffer
	_, err = from.now.Copies().Export(t.Context(), storage.Source{Namespace: namespace, Claim: "device"}, &raw)
	must(t, err)
	_, err = to.now.Copies().Import(t.Context(), storage.Target{}, &raw)
	must(t, err)
	d, err = os.Open(to.isBound(namespace, "device"))
	must(t, err)
	is := make([]byte, len(written))
	_, err = d.ReadAt(is, 5<<20)
	if must(t, err, d.Close()); !bytes.Equal(is, written) {
		t.Errorf("the device has %q...", is[:20])
	}
	for _, name := range []string{"files", "image"} {
		var tar bytes.Buffer
		_, err := from.now.Copies().Export(t.Context(), storage.Source{Namespace: namespace, Claim: name}, &tar)
		must(t, err)
		_, err = to.now.Copies().Import(t.Context(), storage.Target{}, bytes.NewReader(tar.Bytes()))
		must(t, err)
		content(t, filepath.Join(to.isBound(namespace, name), "file"), "of "+map[string]string{"files": "files", "image": "an image"}[name])
		if _, err := to.now.Copies().Import(t.Context(), storage.Target{}, bytes.NewReader(tar.Bytes())); !errdefs.IsAlreadyExists(err) {
			t.Errorf("a second time: %v", err)
		}
		// The kind of the volume is that of the class.
		made, err := to.now.Copies().Import(t.Context(), storage.Target{Namespace: namespace, Claim: name + "-2", Class: "image"}, bytes.NewReader(tar.Bytes()))
		if must(t, err); made.Hold != plan.File {
			t.Errorf("%s is held by %s", name, made.Hold)
		}
		content(t, filepath.Join(to.isBound(namespace, name+"-2"), "file"), "of "+map[string]string{"files": "files", "image": "an image"}[name])
		if _, err := to.now.Copies().Import(t.Context(), storage.Target{Namespace: namespace, Claim: "cut"}, bytes.NewReader(tar.Bytes()[:tar.Len()/2])); !errdefs.IsInvalidArgument(err) {
			t.Errorf("half an archive: %v", err)
		}
	}
	had := len(to.directories())
	to.until("what half an archive has left is removed", func() bool { return len(to.directories()) == had }, func() string { return strings.Join(to.directories(), " ") })
	if had != 5 {
		t.Errorf("there is %v", to.directories())
	}
	for _, w := range []*world{from, to} {
		if left, err := filepath.Glob(filepath.Join(w.dir, ".snapshots", "*")); err != nil || len(left) > 0 {
			t.Errorf("of exports there is left %v, %v", left, err)
		}
	}
}

// TestInUse: files that can be copied one by one only are not copied under a pod, unless one asks for that.
func TestInUse(t *testing.T) {
	w := on(t, "xfs")
	w.begun()
	w.has("c", "x")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "a", Image: "b"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
	}}
	w.AwaitAccount(namespace)
	_, err := w.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	source := storage.Source{Namespace: namespace, Claim: "c"}
	var tar bytes.Buffer
	_, serr := w.now.Copies().Snapshot(t.Context(), source, "s")
	_, eerr := w.now.Copies().Export(t.Context(), source, &tar)
	for _, err := range []error{serr, eerr} {
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "--in-use") {
			t.Errorf("under a pod: %v", err)
		}
	}
	if tar.Len() > 0 {
		t.Errorf("%d bytes were written", tar.Len())
	}
	source.InUse = true
	r, err := w.now.Copies().Snapshot(t.Context(), source, "s")
	if must(t, err); r.AtOnce {
		t.Errorf("it is said to be of one moment: %+v", r)
	}
	_, err = w.now.Copies().Export(t.Context(), source, &tar)
	must(t, err)
	if _, err := w.now.Copies().Snapshot(t.Context(), source, "s"); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second one of the name: %v", err)
	}
}

// TestAFullDiskRefusesACopy: what does not fit is told, nothing of it stays, and nothing else is touched.
func TestAFullDiskRefusesACopy(t *testing.T) {
	w := on(t, "")
	w.dir = filepath.Join(t.TempDir(), "volumes")
	must(t, os.Mkdir(w.dir, 0o700))
	if err := unix.Mount("tmpfs", w.dir, "tmpfs", 0, "size=16m,mode=700"); err != nil {
		t.Skip("needs to mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) })
	w.begun()
	file := w.has("c", "x")
	must(t, os.WriteFile(filepath.Join(filepath.Dir(file), "large"), bytes.Repeat([]byte("large"), 2<<20), 0o600))
	var tar bytes.Buffer
	_, err := w.now.Copies().Export(t.Context(), storage.Source{Namespace: namespace, Claim: "c"}, &tar)
	must(t, err)
	_, err = w.now.Copies().Import(t.Context(), storage.Target{Namespace: namespace, Claim: "d"}, bytes.NewReader(tar.Bytes()))
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("it ends with %v", err)
	}
	content(t, file, "x")
	w.until("nothing of it is left", func() bool { return len(w.directories()) == 1 }, func() string { return strings.Join(w.directories(), " ") })
	if _, err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "d", metav1.GetOptions{}); err == nil {
		t.Error("there is a claim")
	}
	if _, err := w.now.Copies().Snapshot(t.Context(), storage.Source{Namespace: namespace, Claim: "c"}, "s"); err == nil || !strings.Contains(err.Error(), "monopod volume export") {
		t.Errorf("a snapshot on a file system without reflinks: %v", err)
	}
}
