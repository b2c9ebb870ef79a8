package storage_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/apitest"
)

const (
	node      = "n"
	namespace = "default"
)

var (
	volumesOf = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	claimsOf  = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	classesOf = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	eventsOf  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// world is an API server with a provisioner. The test is the other controllers.
type world struct {
	*apitest.API
	dir  string
	stop func()
	now  *storage.Provisioner
}

func begin(t *testing.T) *world {
	t.Helper()
	w := &world{API: apitest.Start(t), dir: filepath.Join(t.TempDir(), "volumes")}
	w.Control(catalog.ClaimProtection, catalog.VolumeProtection)
	w.run()
	w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	return w
}

// run runs the provisioner until the test ends or stop is called.
func (w *world) run() {
	w.Helper()
	p, err := storage.New(storage.Config{Dir: w.dir, NodeName: node, Alone: true, Log: slog.New(slog.NewTextHandler(w.Output(), nil))})
	if err != nil {
		w.Fatal(err)
	}
	w.now = p
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p.Attach(ctx)
	go func() { ended <- p.Run(ctx, w.ControllersConfig()) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		defer p.Close()
		if err := <-ended; err != nil {
			w.Errorf("the provisioner ended with %v", err)
		}
	})
	w.Cleanup(w.stop)
}

// claim makes a claim that the binding controller has told to the provisioner.
func (w *world) claim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	class := plan.ClassName
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{helpers.AnnStorageProvisioner: plan.Provisioner, helpers.AnnSelectedNode: node}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	c, err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Create(w.Context(), c, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// provisioned waits for the volume of a claim.
func (w *world) provisioned(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	name := plan.VolumeName(c)
	w.Await(volumesOf, "", name, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	v, err := w.Client.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// phase has a volume be in a phase, as the binding controller says it.
func (w *world) phase(name string, phase corev1.PersistentVolumePhase) {
	w.Helper()
	v, err := w.Client.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	v.Status.Phase = phase
	if _, err := w.Client.CoreV1().PersistentVolumes().UpdateStatus(w.Context(), v, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// event waits for an event that is about an object and has a reason, and returns its message.
func (w *world) event(about, reason string) (message string) {
	w.Helper()
	var seen []string
	w.AwaitChange(func(ctx context.Context) bool {
		all, err := w.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		seen = seen[:0]
		for _, e := range all.Items {
			seen = append(seen, e.InvolvedObject.Name+" "+e.Reason+" "+e.Message)
			if e.InvolvedObject.Name == about && e.Reason == reason {
				message = e.Message
				return true
			}
		}
		return false
	}, func() string { return "no event " + reason + " of " + about + " among\n" + strings.Join(seen, "\n") }, eventsOf, namespace)
	return message
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAClaimGetsItsDirectory(t *testing.T) {
	w := begin(t)
	c := w.claim("c")
	v := w.provisioned(c)
	data := filepath.Join(w.dir, v.Name, "data")
	info, err := os.Stat(data)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if v.Spec.Local == nil || v.Spec.Local.Path != data || plan.Host(v) != node || v.Spec.ClaimRef.UID != c.UID || v.Spec.StorageClassName != plan.ClassName ||
		v.Spec.Capacity.Storage().String() != "16Mi" || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		v.Annotations[helpers.AnnDynamicallyProvisioned] != plan.Provisioner {
		t.Errorf("the volume is %+v", v)
	}
	w.event("c", "Provisioning")
	w.event("c", "ProvisioningSucceeded")
}

func TestWhatIsReleasedGoes(t *testing.T) {
	w := begin(t)
	c := w.claim("c")
	v := w.provisioned(c)
	if err := os.WriteFile(filepath.Join(v.Spec.Local.Path, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// It is said to be released, and the claim is there: nothing goes.
	w.phase(v.Name, corev1.VolumeReleased)
	other := w.provisioned(w.claim("d")) // so that the first was looked at
	if !exists(filepath.Join(v.Spec.Local.Path, "f")) {
		t.Fatal("data went whose claim is there")
	}
	if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(volumesOf, "", v.Name)
	if exists(filepath.Join(w.dir, v.Name)) {
		t.Error("the directory of a volume that was released is still there")
	}
	if !exists(other.Spec.Local.Path) {
		t.Error("another volume's directory is gone")
	}
}

func TestWhatIsRetainedStays(t *testing.T) {
	w := begin(t)
	v := w.provisioned(w.claim("c"))
	apitest.Patch(w.API, w.Client.CoreV1().PersistentVolumes(), v.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.phase(v.Name, corev1.VolumeReleased)
	if err := w.Client.CoreV1().PersistentVolumes().Delete(t.Context(), v.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(volumesOf, "", v.Name)
	if !exists(v.Spec.Local.Path) {
		t.Error("the directory of a volume with the policy Retain is gone")
	}
	w.stop()
	w.run()
	w.provisioned(w.claim("d"))
	if !exists(v.Spec.Local.Path) {
		t.Error("the directory of a volume that nobody knows is gone after a start")
	}
}

func TestWhatCannotBeHadIsRefused(t *testing.T) {
	w := begin(t)
	many := func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteMany }
	w.claim("many", many)
	if m := w.event("many", "ProvisioningFailed"); !strings.Contains(m, "ReadWriteMany cannot be had") {
		t.Errorf("the event says %q", m)
	}
	w.says("many", "ReadWriteMany cannot be had")
	w.claim("large", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("8Ei")
	})
	if m := w.event("large", "ProvisioningFailed"); !strings.Contains(m, "in all") {
		t.Errorf("the event says %q", m)
	}
	w.says("large", "in all")
	if entries, err := os.ReadDir(w.dir); err == nil && len(entries) > 0 {
		t.Errorf("directories were made: %v", entries)
	}
}

// says waits until the condition of a claim says why it gets no volume; empty: until it says nothing.
func (w *world) says(claim, why string) {
	w.Helper()
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	said := func(c *corev1.PersistentVolumeClaim) (message string) {
		for _, o := range c.Status.Conditions {
			if o.Type == "monopod.dev/ProvisioningFailed" && o.Status == corev1.ConditionTrue { // as the binder reads it
				message = o.Message
			}
		}
		return message
	}
	apitest.Become(w.API, claimsOf, namespace, claims, claim, "told", func(c *corev1.PersistentVolumeClaim) bool {
		return (said(c) != "") == (why != "") && strings.Contains(said(c), why)
	}, func(c *corev1.PersistentVolumeClaim) string { return said(c) })
}

// TestWhatWasRefusedIsMade: a claim gets its volume when what was in its way has gone, and says nothing of it any more.
func TestWhatWasRefusedIsMade(t *testing.T) {
	w := begin(t)
	class := func(parameter string) {
		c := plan.Class(false)
		c.Name, c.Parameters = "own", map[string]string{"isolation": parameter}
		if _, err := w.Client.StorageV1().StorageClasses().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	class("wrong")
	own := func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("own") }
	c, other := w.claim("c", own), w.claim("other", own)
	w.says("c", "which must be auto, quota, image or none")
	w.says("other", "which must be auto, quota, image or none")
	// One of them gets a volume of somebody else's.
	v := plan.Volume(&plan.Record{Name: "by-hand"}, "/nowhere", node, other, plan.Class(false), *other.Spec.Resources.Requests.Storage())
	if _, err := w.Client.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apitest.Patch(w.API, w.Client.CoreV1().PersistentVolumeClaims(namespace), "other", `{"spec":{"volumeName":"by-hand"}}`)
	w.says("other", "")
	if err := w.Client.StorageV1().StorageClasses().Delete(t.Context(), "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	class("none")
	w.provisioned(c)
	w.says("c", "")
}

// bound has a claim and its volume be bound to each other.
func (w *world) bound(claim string, v *corev1.PersistentVolume) {
	w.Helper()
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	apitest.Patch(w.API, claims, claim, `{"spec":{"volumeName":%q}}`, v.Name)
	c, err := claims.Get(w.Context(), claim, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, v.Spec.Capacity
	if _, err := claims.UpdateStatus(w.Context(), c, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.phase(v.Name, corev1.VolumeBound)
}

func TestAClaimGrows(t *testing.T) {
	w := begin(t)
	c := w.claim("c")
	v := w.provisioned(c)
	w.bound("c", v)
	apitest.Patch(w.API, w.Client.CoreV1().PersistentVolumeClaims(namespace), "c", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
	c = apitest.Become(w.API, claimsOf, namespace, w.Client.CoreV1().PersistentVolumeClaims(namespace), "c", "as large as it wants", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().String() == "32Mi"
	}, func(c *corev1.PersistentVolumeClaim) string { return c.Status.String() })
	resizing := func(o corev1.PersistentVolumeClaimCondition) bool {
		return o.Type == corev1.PersistentVolumeClaimResizing
	}
	if slices.ContainsFunc(c.Status.Conditions, resizing) || len(c.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("the status still tells of a growth: %+v", c.Status)
	}
	if v, err := w.Client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil || v.Spec.Capacity.Storage().String() != "32Mi" {
		t.Errorf("the volume has %s, %v", v.Spec.Capacity.Storage(), err)
	}
	w.event("c", "VolumeResizeSuccessful")
}

// Each class of the provisioner says what holds its volumes' sizes; a person's own words stay until the next start.
func TestClassesSayWhatHoldsSizes(t *testing.T) {
	w := begin(t)
	classes := w.Client.StorageV1().StorageClasses()
	says := func(name, what string) {
		t.Helper()
		apitest.Become(w.API, storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", classes, name, "saying what holds sizes", func(c *storagev1.StorageClass) bool {
			return strings.HasPrefix(c.Annotations[plan.SizesAnnotation], what)
		}, func(c *storagev1.StorageClass) string { return c.Annotations[plan.SizesAnnotation] })
	}
	says(plan.ClassName, "nothing: the file system of "+w.dir)
	for isolation, what := range map[plan.Isolation]string{plan.Image: "image", plan.Unlimited: "nothing: its class", plan.Quota: "nothing can: "} {
		c := plan.Class(false)
		c.Name, c.Parameters = "class-"+string(isolation), map[string]string{plan.IsolationParameter: string(isolation)}
		if _, err := classes.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		says(c.Name, what)
	}
	w.stop()
	apitest.Patch(w.API, classes, plan.ClassName, `{"metadata":{"annotations":{%q:"qgroup"}}}`, plan.SizesAnnotation)
	w.run()
	says(plan.ClassName, "nothing: ")
}

// A class that a person has deleted or changed does not come back.
func TestTheClassIsMadeOnce(t *testing.T) {
	w := begin(t)
	classes := w.Client.StorageV1().StorageClasses()
	c, err := classes.Get(t.Context(), plan.ClassName, metav1.GetOptions{})
	if err != nil || c.Annotations[plan.DefaultAnnotation] != "true" || *c.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || !*c.AllowVolumeExpansion {
		t.Fatalf("the class is %+v, %v", c, err)
	}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	w.Await(maps, metav1.NamespaceSystem, "monopod-storage", "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	w.stop()
	if err := classes.Delete(t.Context(), plan.ClassName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.run()
	own := *c.DeepCopy()
	own.ObjectMeta = metav1.ObjectMeta{Name: "own"}
	if _, err := classes.Create(t.Context(), &own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.provisioned(w.claim("c", func(c *corev1.PersistentVolumeClaim) { name := "own"; c.Spec.StorageClassName = &name }))
	if _, err := classes.Get(t.Context(), plan.ClassName, metav1.GetOptions{}); err == nil {
		t.Error("the class that was deleted is there again")
	}
}

// TestReport: what is said of a volume whose directory is lost, of one that nobody knows, and of one whose record cannot be read. None of them is touched.
func TestReport(t *testing.T) {
	w := begin(t)
	well, lost, stray := w.provisioned(w.claim("well")), w.provisioned(w.claim("lost")), w.provisioned(w.claim("stray"))
	if err := os.WriteFile(filepath.Join(well.Spec.Local.Path, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w.event("stray", "ProvisioningSucceeded") // so that it is recorded as ready
	w.event("lost", "ProvisioningSucceeded")
	w.stop()
	if err := os.RemoveAll(lost.Spec.Local.Path); err != nil {
		t.Fatal(err)
	}
	volumes := w.Client.CoreV1().PersistentVolumes()
	apitest.Patch(w.API, volumes, stray.Name, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[%q]}}`, plan.Finalizer)
	if err := volumes.Delete(t.Context(), stray.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "stray", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(volumesOf, "", stray.Name)
	odd := filepath.Join(w.dir, "odd")
	if err := os.MkdirAll(filepath.Join(odd, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.run()
	if m := w.event("lost", "VolumeLost"); !strings.Contains(m, lost.Spec.Local.Path) {
		t.Errorf("the event says %q", m)
	}
	states := map[string]storage.State{}
	for _, told := range w.now.Report(t.Context(), true) {
		states[told.Record.Name] = told.State
		if told.Record.Name == well.Name && (told.Used == nil || *told.Used < 1<<20 || *told.Used > 2<<20) {
			t.Errorf("its use is said to be %v, %v", told.Used, told.Err)
		}
	}
	want := map[string]storage.State{well.Name: storage.Ready, lost.Name: storage.Missing, stray.Name: storage.Stray, "odd": storage.Unreadable}
	if !maps.Equal(states, want) {
		t.Errorf("the states are %v, want %v", states, want)
	}
	if exists(lost.Spec.Local.Path) || !exists(stray.Spec.Local.Path) || !exists(odd) {
		t.Error("something was made or removed")
	}
}
