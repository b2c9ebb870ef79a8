package bench

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const (
	// fullPods have a volume of each usual kind; fullRest is how long they are left alone before memory is read.
	fullPods = 300
	fullRest = 60 * time.Second
	// mapChanges is how often the ConfigMap changes that all of them have.
	mapChanges = 5
)

// BenchmarkFullPods compares the memory of a node with 300 pods that have a token, a ConfigMap, a Secret, an emptyDir and a claim each with that of a node with 300
// pods without any of these, and tells how long it takes until a changed ConfigMap is in all of their volumes. The goals are 15 MB more and 3 s.
func BenchmarkFullPods(b *testing.B) {
	long(b)
	figures := map[bool][5]int{}
	for _, full := range []bool{false, true} {
		b.Run(map[bool]string{true: "with", false: "without"}[full], func(b *testing.B) {
			for b.Loop() { // a node's memory is no matter of rounds
			}
			n := harness.StartNode(b, harness.Options{Args: []string{"--log-level", "info", "--max-pods", "400", "--pod-cidr", "10.198.0.0/16"}}) // room for all the pods
			n.LoadImage(harness.Archive(b, image, images.Busybox))
			c := client(b, n)
			awaitClass(b, c)
			uids := fillNode(b, c, full)
			time.Sleep(fullRest) //nolint:forbidigo // a node that does nothing is what is measured
			anon, all := memory(b, n.PID())
			executor, _ := harness.PSS(b, n.ExecutorSocket())
			figures[full] = [5]int{anon, all, executor, heap(b, c, "alloc"), heap(b, c, "inuse")}
			if full {
				changeMap(b, n, c, uids)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("\n%-44s %12s %12s %12s\n", fmt.Sprint("memory of a node with ", fullPods, " pods, MB"), "without", "with", "more")
	for i, what := range []string{"anonymous, of monopod", "PSS, of monopod", "PSS, of its executor", "monopod's heap, with its newest garbage", "monopod's heap, with what is free between"} {
		without, with := float64(figures[false][i])/1e3, float64(figures[true][i])/1e3
		fmt.Printf("%-44s %12.1f %12.1f %+12.1f\n", what, without, with, with-without)
	}
}

// heap is a figure of the node's heap, in kB.
func heap(b *testing.B, c kubernetes.Interface, figure string) int {
	b.Helper()
	raw, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	must(b, err)
	for line := range strings.Lines(string(raw)) {
		var bytes float64
		if _, err := fmt.Sscanf(line, "go_memstats_heap_"+figure+"_bytes %g", &bytes); err == nil {
			return int(bytes / 1000)
		}
	}
	b.Fatalf("the node tells nothing of its heap (%s)", figure)
	return 0
}

// fillNode makes the pods, and returns when all are Running.
func fillNode(b *testing.B, c kubernetes.Interface, full bool) (uids []types.UID) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	core := c.CoreV1()
	_, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"key": "0"}}, metav1.CreateOptions{})
	must(b, err)
	_, err = core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "secret"}}, metav1.CreateOptions{})
	must(b, err)
	running := map[types.UID]bool{}
	wait := followAll(ctx, core.RESTClient(), "pods", &corev1.Pod{}, func(p *corev1.Pod, _ bool) bool {
		if p.Status.Phase == corev1.PodRunning {
			running[p.UID] = true
		}
		return len(running) == fullPods
	})
	go func() {
		for i := range fullPods {
			name := fmt.Sprint("full-", i)
			pod := busyPod("", name, "", 0)
			pod.Spec.AutomountServiceAccountToken = &full
			if full {
				with(pod, "map", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}})
				with(pod, "secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})
				with(pod, "empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
				withClaim(pod, name)
				if _, err := core.PersistentVolumeClaims("default").Create(ctx, newClaim(name, "", "10Mi"), metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
			if _, err := core.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				b.Error(err)
			}
		}
	}()
	must(b, wait())
	return slices.Collect(maps.Keys(running))
}

// changeMap changes the ConfigMap a few times, and tells how long that takes to be in all pods.
func changeMap(b *testing.B, n *harness.Node, c kubernetes.Interface, uids []types.UID) {
	b.Helper()
	var took []time.Duration
	for i := range mapChanges {
		want := fmt.Appendf(nil, "%d", i+1)
		begin := time.Now()
		_, err := c.CoreV1().ConfigMaps("default").Patch(context.Background(), "m", types.MergePatchType, fmt.Appendf(nil, `{"data":{"key":"%s"}}`, want), metav1.PatchOptions{})
		must(b, err)
		left := slices.Clone(uids)
		harness.Eventually(b, "all pods have the new ConfigMap", func() (bool, string) {
			left = slices.DeleteFunc(left, func(uid types.UID) bool {
				raw, err := os.ReadFile(filepath.Join(n.Dir, "data", "pods", string(uid), "volumes", "map", "key"))
				return err == nil && bytes.Equal(raw, want)
			})
			return len(left) == 0, fmt.Sprint(len(left), " have not")
		})
		took = append(took, time.Since(begin))
	}
	fmt.Printf("\na changed ConfigMap is in all %d pods after (ms): p50 %.0f, most %.0f\n", fullPods, quantile(took, 0.5), quantile(took, 1))
	b.ReportMetric(quantile(took, 1), "map-most-ms")
}

const (
	idleClaims  = 100
	idleWindows = 5
	idleWindow  = 30 * time.Second
)

// BenchmarkIdleClaims compares the processor time of an idle node with 100 claims with that of one without. Both run at the same time, and are compared before the one
// has its claims, too: what else differs between them is taken off. The goal is 1.05 times.
func BenchmarkIdleClaims(b *testing.B) {
	long(b)
	for b.Loop() { // the windows are enough
	}
	nodes := [2]*harness.Node{start(b, "up"), start(b, "up")}
	c := client(b, nodes[1])
	awaitClass(b, c)
	before := idle(b, nodes)
	newClass(b, c, "at-once", "auto", storagev1.VolumeBindingImmediate)
	ctx, cancel := context.WithTimeout(context.Background(), claimPatience)
	defer cancel()
	done := map[string]bool{}
	wait := followAll(ctx, c.CoreV1().RESTClient(), "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim, _ bool) bool {
		if c.Status.Phase == corev1.ClaimBound {
			done[c.Name] = true
		}
		return len(done) == idleClaims
	})
	for i := range idleClaims {
		_, err := c.CoreV1().PersistentVolumeClaims("default").Create(ctx, newClaim(fmt.Sprint("c", i), "at-once", "10Mi"), metav1.CreateOptions{})
		must(b, err)
	}
	must(b, wait())
	after := idle(b, nodes)
	fmt.Printf("\n%-40s %12s %12s %8s\n", "idle, ms of a processor a second", "one node", "the other", "ratio")
	fmt.Printf("%-40s %12.2f %12.2f %8.2f\n", "both without claims", before[0], before[1], before[1]/before[0])
	fmt.Printf("%-40s %12.2f %12.2f %8.2f\n", fmt.Sprint("the other with ", idleClaims, " claims"), after[0], after[1], after[1]/after[0])
	ratio := after[1] / after[0] / (before[1] / before[0])
	fmt.Printf("%-40s %34.2f\n", "with claims : without", ratio)
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(0, "ns/op")
}

// idle is how many ms of a processor the nodes need in a second in which they have nothing to do: the medians of some windows.
func idle(b *testing.B, nodes [2]*harness.Node) (medians [2]float64) {
	b.Helper()
	time.Sleep(idleWindow) //nolint:forbidigo // so that they have come to rest
	var all [2][]float64
	for range idleWindows {
		var had [2]time.Duration
		for i, n := range nodes {
			had[i] = (&peer{mark: n.Dir}).cpu(b)
		}
		time.Sleep(idleWindow) //nolint:forbidigo // a node that does nothing is what is measured
		for i, n := range nodes {
			all[i] = append(all[i], float64(((&peer{mark: n.Dir}).cpu(b)-had[i]).Microseconds())/1000/idleWindow.Seconds())
		}
	}
	for i := range all {
		medians[i] = slices.Sorted(slices.Values(all[i]))[idleWindows/2]
	}
	return medians
}
