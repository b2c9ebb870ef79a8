package kinds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// world is a pods' directory, a claim with its volume, and a pod that uses it.
type world struct {
	t      *testing.T
	pods   string // the directory of all pods
	data   string // what the volume holds
	claim  *v1.PersistentVolumeClaim
	volume *v1.PersistentVolume
	kind   *claim

	mu    sync.Mutex // guards what follows, while several pods are set up at a time
	asked int
	told  []string
}

// Get has the objects read from a server that has these two.
func (w *world) Get(ctx context.Context, n objects.Name) (runtime.Object, error) {
	w.mu.Lock()
	w.asked++
	w.mu.Unlock()
	return objects.New(ctx, fake.NewClientset(w.claim, w.volume)).Get(ctx, n)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	w := &world{t: t, pods: filepath.Join(t.TempDir(), "pods"), data: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(w.data, 0o755); err != nil {
		t.Fatal(err)
	}
	w.write("kept", "as it is")
	w.claim = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim-uid"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv", AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	w.volume = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid"}, Spec: v1.PersistentVolumeSpec{
		ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "c", UID: "claim-uid"},
		PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: w.data}},
	}}
	w.kind = &claim{cfg: Config{
		Objects: w, Node: func() *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.LabelHostname: "here"}}}
		},
		Tell: func(_ *v1.Pod, kind, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, kind+" "+reason+" "+message)
		},
	}}
	t.Cleanup(func() {
		if err := mount.UnmountBelow(w.pods); err != nil {
			t.Error(err)
		}
		if raw, err := os.ReadFile(filepath.Join(w.data, "kept")); err != nil || string(raw) != "as it is" {
			t.Errorf("what the volume held is %q, %v", raw, err)
		}
	})
	return w
}

func (w *world) write(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.data, name), []byte(content), 0o640); err != nil {
		w.t.Fatal(err)
	}
}

// pod is one whose volume "v" stands for the claim.
func (w *world) pod(uid string) *Volume {
	w.t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pod-uid"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "a", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
	}}
	v := &Volume{Pod: p, Spec: &p.Spec.Volumes[0], Dir: filepath.Join(w.pods, uid, "volumes", "v")}
	if err := os.MkdirAll(filepath.Dir(v.Dir), 0o750); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) setUp(v *Volume) Source {
	w.t.Helper()
	if err := w.kind.Setup(w.t.Context(), v); err != nil {
		w.t.Fatal(err)
	}
	s, err := w.kind.Mount(v)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) down(v *Volume) {
	w.t.Helper()
	if err := w.kind.Teardown(w.t.Context(), &Left{Name: "v", Dir: v.Dir}); err != nil {
		w.t.Fatal(err)
	}
	if is, err := mount.IsPoint(v.Dir); err != nil || is {
		w.t.Fatalf("it is mounted still, or not known: %v, %v", is, err)
	}
}

// TestClaim: a directory is mounted in the pod's place, for good until it is taken down, whatever becomes of the claim and the API server.
func TestClaim(t *testing.T) {
	w := newWorld(t)
	v := w.pod("u")
	if got := w.setUp(v); got != (Source{Path: v.Dir}) {
		t.Errorf("containers get %+v", got)
	}
	if err := os.WriteFile(filepath.Join(v.Dir, "new"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(w.data, "new")); err != nil {
		t.Error(err)
	}
	asked := w.asked
	w.claim.DeletionTimestamp, w.claim.Finalizers = &metav1.Time{}, []string{"kubernetes.io/pvc-protection"}
	w.kind = &claim{cfg: w.kind.cfg} // an agent that was started anew
	w.setUp(v)
	if w.asked != asked {
		t.Error("the API server was asked for a volume that was there")
	}
	if points, err := mount.Below(v.Dir); err != nil || len(points) != 1 {
		t.Errorf("mounted: %v, %v", points, err)
	}
	// Somebody unmounts it: no container gets the empty directory in its place.
	if err := unix.Unmount(v.Dir, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := w.kind.Mount(v); err == nil || !strings.Contains(err.Error(), "volume pv, local "+w.data+", is not mounted at "+v.Dir) {
		t.Errorf("containers get %+v, %v", got, err)
	}
	w.claim.DeletionTimestamp = nil
	w.setUp(v)
	w.down(v)
	w.down(v)
	want := claims.Record{Version: 1, Namespace: "ns", Claim: "c", ClaimUID: "claim-uid", Volume: "pv", VolumeUID: "pv-uid", Source: claims.Local, Path: w.data, Mounted: true}
	if r, err := claims.Read(filepath.Join(w.pods, "u"), "v"); err != nil || r != want {
		t.Errorf("on record is %+v, %v", r, err)
	}
}

// TestClaimReadOnly: what the pod, or the claim, wants to read only nobody writes to, and mount options hold.
func TestClaimReadOnly(t *testing.T) {
	for name, change := range map[string]func(w *world, v *Volume){
		"the pod":   func(_ *world, v *Volume) { v.Spec.PersistentVolumeClaim.ReadOnly = true },
		"the claim": func(w *world, _ *Volume) { w.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany} },
		"an option": func(w *world, _ *Volume) { w.volume.Spec.MountOptions = []string{"rw", "noatime", "ro"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.pod("u")
			change(w, v)
			got := w.setUp(v)
			if !got.ReadOnly && name != "an option" {
				t.Errorf("containers get %+v", got)
			}
			if err := os.WriteFile(filepath.Join(v.Dir, "new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("written with %v", err)
			}
			w.write("new", "others may") // the volume itself is as it was
			w.down(v)
		})
	}
}

// TestClaimHostPath: a path of the host is not mounted, but shown as it is; its type is checked as that of a pod's.
func TestClaimHostPath(t *testing.T) {
	w := newWorld(t)
	dir := v1.HostPathDirectory
	w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: w.data, Type: &dir}}
	v := w.pod("u")
	if got := w.setUp(v); got != (Source{Path: w.data}) {
		t.Errorf("containers get %+v", got)
	}
	if _, err := os.Lstat(v.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is something in the pod's place: %v", err)
	}
	w.down(v)
	w.volume.Spec.HostPath.Path = filepath.Join(w.data, "kept")
	other := w.pod("other")
	for range 2 { // also when it is tried again
		if err := w.kind.Setup(t.Context(), other); err == nil || !strings.Contains(err.Error(), "is not a directory") {
			t.Errorf("a file as a directory: %v", err)
		}
	}
}

// TestClaimRefused: what keeps a pod from its volume is said as a kubelet says it, and nothing is made.
func TestClaimRefused(t *testing.T) {
	affine := func(host string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{host}},
		}}}}}
	}
	block := v1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		change func(w *world, v *Volume)
		want   string
	}{
		"no claim": {func(_ *world, v *Volume) { v.Spec.PersistentVolumeClaim.ClaimName = "x" }, `error processing PVC ns/x: failed to fetch PVC from API server: persistentvolumeclaim "x" not found`},
		"unbound":  {func(w *world, _ *Volume) { w.claim.Status.Phase = v1.ClaimPending }, "error processing PVC ns/c: PVC is not bound"},
		"lost":     {func(w *world, _ *Volume) { w.claim.Status.Phase = v1.ClaimLost }, "PVC is not bound: it has lost its volume pv"},
		"deleted": {func(w *world, _ *Volume) {
			w.claim.DeletionTimestamp, w.claim.Finalizers = new(metav1.Now()), []string{"f"}
		}, "PVC is being deleted"},
		"no volume":       {func(w *world, _ *Volume) { w.claim.Spec.VolumeName = "gone" }, `failed to fetch PV gone from API server: persistentvolume "gone" not found`},
		"nobody's":        {func(w *world, _ *Volume) { w.volume.Spec.ClaimRef = nil }, "has nil pv.Spec.ClaimRef"},
		"somebody else's": {func(w *world, _ *Volume) { w.volume.Spec.ClaimRef.UID = "former" }, "has pv.Spec.ClaimRef.UID former, which does not point to PVC UID claim-uid"},
		"elsewhere":       {func(w *world, _ *Volume) { w.volume.Spec.NodeAffinity = affine("there") }, `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"not known yet": {func(w *world, _ *Volume) {
			w.volume.Spec.NodeAffinity, w.kind.cfg.Node = affine("here"), func() *v1.Node { return nil }
		}, "the labels of the node are not known yet"},
		"no directory": {func(w *world, _ *Volume) { w.volume.Spec.Local.Path = "/not/there" }, `path "/not/there" of the local volume pv does not exist on this node`},
		"a file":       {func(w *world, _ *Volume) { w.volume.Spec.Local.Path += "/kept" }, "is neither a directory nor a block device"},
		"not mounted": {func(w *world, _ *Volume) {
			w.volume.Spec.Local.Path += "/bare"
			if err := os.Mkdir(w.volume.Spec.Local.Path, 0); err != nil {
				w.t.Fatal(err)
			}
		}, "is an empty directory with the mode 0: what belongs there is not mounted"},
		"an odd option":   {func(w *world, _ *Volume) { w.volume.Spec.MountOptions = []string{"noatime", "nouuid"} }, `mountOptions ["nouuid"] of the local volume pv`},
		"a block volume":  {func(w *world, _ *Volume) { w.volume.Spec.VolumeMode = &block }, "volume v has volumeMode Block, but is specified in volumeMounts"},
		"as a device":     {func(_ *world, v *Volume) { asDevice(v) }, "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		"no block device": {func(w *world, v *Volume) { w.volume.Spec.VolumeMode = &block; asDevice(v) }, "is no block device"},
		"another's driver": {func(w *world, _ *Volume) {
			w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{}}
		}, "it needs the CSI driver rbd.csi.ceph.com"},
		"no source": {func(w *world, _ *Volume) { w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{} }, "was removed from Kubernetes"},
		"not the pod's own": {func(w *world, v *Volume) {
			w.claim.Name = "p-v"
			v.Spec.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
		}, "was not created for pod ns/p"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.pod("u")
			c.change(w, v)
			if err := w.kind.Setup(t.Context(), v); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if got, err := w.kind.Mount(v); err == nil && got.Path == v.Dir {
				t.Errorf("containers get %+v", got)
			}
		})
	}
	w := newWorld(t)
	w.volume.Spec.NodeAffinity = affine("here")
	if _, err := w.kind.Mount(w.pod("u")); err == nil || !strings.Contains(err.Error(), "is not set up") {
		t.Errorf("a claim that was not set up: %v", err)
	}
	w.setUp(w.pod("u"))
}

func asDevice(v *Volume) {
	c := &v.Pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
}

// TestClaimOfThePod: a claim that is made along with a pod is that pod's.
func TestClaimOfThePod(t *testing.T) {
	w := newWorld(t)
	yes := true
	w.claim.Name = "p-v"
	w.claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "pod-uid", Controller: &yes}}
	v := w.pod("u")
	v.Spec.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	w.setUp(v)
}

// TestClaimAlone: a volume that one pod has at a time is not another's on this node until it was released.
func TestClaimAlone(t *testing.T) {
	w := newWorld(t)
	w.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	first, second := w.pod("one"), w.pod("two")
	w.setUp(first)
	w.setUp(first)
	if err := w.kind.Setup(t.Context(), second); err == nil || err.Error() != "volume uses the ReadWriteOncePod access mode and is already in use by another pod" {
		t.Errorf("the second one has it: %v", err)
	}
	w.down(first)
	if err := claims.Forget(filepath.Join(w.pods, "one")); err != nil {
		t.Fatal(err)
	}
	w.setUp(second)
}

// TestClaimOfAPodThatIsGone: who comes in the place of a pod that was deleted by force has the volume when that one has let go, and not before; whoever shares it does at once.
func TestClaimOfAPodThatIsGone(t *testing.T) {
	w := newWorld(t)
	there := []types.UID{"one", "two"}
	w.kind.cfg.Pods = func() (all []*v1.Pod) {
		for _, uid := range there {
			all = append(all, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		}
		return all
	}
	first := w.pod("one")
	w.setUp(first)
	w.setUp(w.pod("two"))
	there = []types.UID{"two", "three"}
	third := w.pod("three")
	if err := w.kind.Setup(t.Context(), third); err == nil || !strings.Contains(err.Error(), "UID one, which was deleted by force") {
		t.Errorf("the third one has it: %v", err)
	}
	w.setUp(w.pod("two")) // which has it already
	w.down(first)
	if err := claims.Forget(filepath.Join(w.pods, "one")); err != nil {
		t.Fatal(err)
	}
	w.setUp(third)
}

// TestClaimReaders: the errors of a server that does not answer are no verdict about the claim.
func TestClaimReaders(t *testing.T) {
	w := newWorld(t)
	w.kind.cfg.Objects = silent{}
	if err := w.kind.Setup(t.Context(), w.pod("u")); err == nil || !apierrors.IsTimeout(err) {
		t.Errorf("got %v", err)
	}
}

type silent struct{}

func (silent) Get(context.Context, objects.Name) (runtime.Object, error) {
	return nil, apierrors.NewTimeoutError("it is silent", 1)
}
