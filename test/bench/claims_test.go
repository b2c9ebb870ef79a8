package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/test/harness"
)

const (
	// defaultClass is the class that a node has by itself.
	defaultClass  = "local"
	provisioner   = "monopod.dev/local"
	defaultMarker = "storageclass.kubernetes.io/is-default-class"
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "volume.kubernetes.io/storage-provisioner"
	bindCompleted = "pv.kubernetes.io/bind-completed"
)

// awaitClass waits until the node has made its class, so that claims get it.
func awaitClass(b *testing.B, c kubernetes.Interface) {
	b.Helper()
	harness.Eventually(b, "the default class is there", func() (bool, string) {
		class, err := c.StorageV1().StorageClasses().Get(context.Background(), defaultClass, metav1.GetOptions{})
		return err == nil && class.Annotations[defaultMarker] == "true", fmt.Sprint(err)
	})
}

// newClass makes a class of the node's own provisioner.
func newClass(b *testing.B, c kubernetes.Interface, name, isolation string, mode storagev1.VolumeBindingMode) {
	b.Helper()
	_, err := c.StorageV1().StorageClasses().Create(context.Background(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode, Parameters: map[string]string{"isolation": isolation},
	}, metav1.CreateOptions{})
	must(b, err)
}

// newClaim is a claim of the class; empty: of the default one.
func newClaim(name, class string, size string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

// with gives a pod a volume, which its container sees at /NAME.
func with(pod *corev1.Pod, name string, source corev1.VolumeSource) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	return pod
}

// withClaim gives a pod the volume of a claim.
func withClaim(pod *corev1.Pod, claim string) *corev1.Pod {
	return with(pod, "claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

// starts are pods of three kinds that are started in turns, each on a node that has nothing else to do.
type starts struct {
	*testing.B
	client kubernetes.Interface
	// What the watches have shown.
	pods, claims, volumes <-chan seen
	times                 sample
	// steps are when the parts of a start with an unbound claim were over, from its POST on.
	steps sample
	made  int
}

// The kinds of pods.
const (
	unclaimed = "without"
	bound     = "bound"
	unbound   = "unbound"
)

// BenchmarkPodWithClaim compares, in turns, the time from a pod's POST until a watch shows it Running: of a pod without a claim, of one whose claim has its volume,
// and of one whose claim, of the default class, gets its volume then. The goals are 6 ms more and 20 ms more.
func BenchmarkPodWithClaim(b *testing.B) {
	n := start(b, "up")
	s := &starts{B: b, client: client(b, n), times: sample{}, steps: sample{}}
	awaitClass(b, s.client)
	ctx := context.Background()
	pods, err := s.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	s.pods = follow(b, pods, err)
	claims, err := s.client.CoreV1().PersistentVolumeClaims("default").Watch(ctx, metav1.ListOptions{})
	s.claims = follow(b, claims, err)
	volumes, err := s.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	s.volumes = follow(b, volumes, err)
	s.claim(bound)
	s.start(unbound, bound) // which has its volume from then on
	kinds := []string{unclaimed, bound, unbound}
	for i := range warmUps {
		s.round(kinds[i%3])
	}
	clear(s.times)
	clear(s.steps)
	for i := 0; b.Loop(); i++ {
		for j := range kinds {
			s.round(kinds[(i+j)%3])
		}
	}
	s.tell()
}

// tell prints what was measured.
func (s *starts) tell() {
	fmt.Printf("\n%-20s %8s %8s %8s %10s\n", "POST to Running, ms", "p50", "p90", "p99", "p50 more")
	for _, kind := range []string{unclaimed, bound, unbound} {
		more := quantile(s.times[kind], 0.5) - quantile(s.times[unclaimed], 0.5)
		fmt.Printf("%-20s %8.1f %8.1f %8.1f %+10.1f\n", kind, quantile(s.times[kind], 0.5), quantile(s.times[kind], 0.9), quantile(s.times[kind], 0.99), more)
		if kind != unclaimed {
			s.ReportMetric(more, kind+"-more-ms")
		}
	}
	fmt.Printf("\n%-32s %8s %8s\n", "an unbound claim, ms from POST", "p50", "p90")
	for _, step := range unboundSteps {
		fmt.Printf("%-32s %8.1f %8.1f\n", step, quantile(s.steps[step], 0.5), quantile(s.steps[step], 0.9))
	}
	s.times.report(s.B)
}

// claim makes a claim of the default class.
func (s *starts) claim(name string) {
	s.Helper()
	_, err := s.client.CoreV1().PersistentVolumeClaims("default").Create(context.Background(), newClaim(name, "", "100Mi"), metav1.CreateOptions{})
	must(s.B, err)
}

// round is one pod's life, with a claim's for a pod that wants a new one.
func (s *starts) round(kind string) {
	s.Helper()
	s.made++
	claim := bound
	if kind == unbound {
		claim = fmt.Sprint("c", s.made)
		s.claim(claim)
	}
	time.Sleep(settle) //nolint:forbidigo // a machine that does nothing is what is measured on
	s.start(kind, claim)
	if kind == unbound {
		s.remove(claim)
	}
}

// start starts a pod of the kind, measures it, and removes it.
func (s *starts) start(kind, claim string) {
	s.Helper()
	ctx, name := context.Background(), fmt.Sprint("p", s.made)
	pod := busyPod("", name, "", 0)
	if kind != unclaimed {
		withClaim(pod, claim)
	}
	begin := time.Now()
	_, err := s.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	must(s.B, err)
	var hasNode time.Time
	running := await(s.B, name+" runs", s.pods, func(e watch.Event) bool {
		p, ok := e.Object.(*corev1.Pod)
		if !ok || p.Name != name {
			return false
		}
		if p.Spec.NodeName != "" && hasNode.IsZero() {
			hasNode = time.Now()
		}
		return p.Status.Phase == corev1.PodRunning
	})
	s.times[kind] = append(s.times[kind], running.Sub(begin))
	if kind == unbound {
		s.follow(claim, begin)
		s.steps[stepNode] = append(s.steps[stepNode], hasNode.Sub(begin))
		s.steps[stepRunning] = append(s.steps[stepRunning], running.Sub(begin))
	}
	grace := int64(1)
	must(s.B, s.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	await(s.B, name+" is gone", s.pods, func(e watch.Event) bool {
		p, ok := e.Object.(*corev1.Pod)
		return ok && p.Name == name && e.Type == watch.Deleted
	})
}

// The steps of a start with an unbound claim, as watches show them.
const (
	stepSelected  = "the claim has its node"
	stepAnnounced = "the claim has its provisioner"
	stepMade      = "the volume is there"
	stepComplete  = "the claim names its volume"
	stepBound     = "the claim is Bound"
	stepNode      = "the pod has its node"
	stepRunning   = "the pod is Running"
)

var unboundSteps = []string{stepSelected, stepAnnounced, stepMade, stepComplete, stepBound, stepNode, stepRunning}

// follow notes when the steps of a claim came, whose pod runs.
func (s *starts) follow(name string, begin time.Time) {
	s.Helper()
	var at time.Time
	had := map[string]bool{}
	note := func(step string, is bool) {
		if is && !had[step] {
			had[step] = true
			s.steps[step] = append(s.steps[step], at.Sub(begin))
		}
	}
	for had[stepBound] = false; !had[stepBound]; {
		e := <-s.claims
		claim, ok := e.Object.(*corev1.PersistentVolumeClaim)
		if !ok {
			s.Fatalf("a watch of claims says %v", e.Object)
		}
		if claim.Name != name {
			continue
		}
		at = e.at
		note(stepSelected, claim.Annotations[selectedNode] != "")
		note(stepAnnounced, claim.Annotations[provisionedBy] != "")
		note(stepComplete, claim.Annotations[bindCompleted] != "")
		note(stepBound, claim.Status.Phase == corev1.ClaimBound)
	}
	at = await(s.B, "the volume of "+name, s.volumes, func(e watch.Event) bool { return ofClaim(e, name) })
	note(stepMade, true)
}

// ofClaim says of an event that it is about the volume of a claim.
func ofClaim(e watch.Event, claim string) bool {
	v, ok := e.Object.(*corev1.PersistentVolume)
	return ok && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == claim
}

// remove removes a claim, with all that belongs to it.
func (s *starts) remove(name string) {
	s.Helper()
	must(s.B, s.client.CoreV1().PersistentVolumeClaims("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
	await(s.B, "the volume of "+name+" is gone", s.volumes, func(e watch.Event) bool { return ofClaim(e, name) && e.Type == watch.Deleted })
}

// processTime is how long a process, without those that it has started, has had a processor.
func processTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	must(b, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks int64
	for _, field := range strings.Fields(rest)[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
