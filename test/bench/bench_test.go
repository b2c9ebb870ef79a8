package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const image = "localhost/bench/busybox:1"

func start(b *testing.B, command string, args ...string) *harness.Node {
	b.Helper()
	n := harness.StartNode(b, harness.Options{Command: command, Args: append([]string{"--log-level", "info"}, args...)})
	n.LoadImage(harness.Archive(b, image, images.Busybox))
	return n
}

// longVar has those run as well that take minutes each, and are about many claims or much memory.
const longVar = "MONOPOD_BENCH_LONG"

// long is the first line of those.
func long(b *testing.B) {
	b.Helper()
	if os.Getenv(longVar) == "" {
		b.Skipf("it takes minutes: set %s=1", longVar)
	}
}

// sample collects durations by name and reports their medians.
type sample map[string][]time.Duration

func (s sample) time(name string, f func() error) error {
	begin := time.Now()
	err := f()
	s[name] = append(s[name], time.Since(begin))
	return err
}

// median is the median of the durations of a name.
func (s sample) median(name string) time.Duration {
	all := slices.Sorted(slices.Values(s[name]))
	return all[len(all)/2]
}

func (s sample) report(b *testing.B) {
	for name := range s {
		b.ReportMetric(float64(s.median(name).Microseconds())/1000, name+"-ms")
	}
	b.ReportMetric(0, "ns/op") // a mean that says nothing beside the medians
}

func reportMemory(b *testing.B, n *harness.Node) {
	b.Helper()
	all, _ := harness.PSS(b, n.Dir+"/run")
	executor, _ := harness.PSS(b, n.ExecutorSocket())
	b.ReportMetric(float64(all), "all-PSS-kB")
	b.ReportMetric(float64(executor), "executor-PSS-kB")
}

// BenchmarkAPI is one pod's life through the Kubernetes API.
func BenchmarkAPI(b *testing.B) {
	n := start(b, "up")
	cfg, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig())
	if err != nil {
		b.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
	ctx := context.Background()
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	await := func(name string, cond func(watch.Event, *corev1.Pod) bool) error {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name == name && cond(e, p) {
				return nil
			}
		}
		return fmt.Errorf("the watch ended")
	}
	s := sample{}
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("bench-", i)
		if err := s.time("create-to-running", func() error {
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64),
				Containers:                    []corev1.Container{{Name: "c", Image: image, Command: []string{"sleep", "3600"}}}}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return await(name, func(_ watch.Event, p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		}); err != nil {
			b.Fatal(err)
		}
		grace := int64(1)
		if err := s.time("delete-to-gone", func() error {
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
				return err
			}
			return await(name, func(e watch.Event, _ *corev1.Pod) bool { return e.Type == watch.Deleted })
		}); err != nil {
			b.Fatal(err)
		}
	}
	s.report(b)
	reportMemory(b, n)
}

// BenchmarkNodeReady starts nodes with empty directories.
func BenchmarkNodeReady(b *testing.B) {
	s := sample{}
	for b.Loop() {
		n := harness.NewNode(b, harness.Options{Args: []string{"--ephemeral", "--log-level", "info"}})
		if err := s.time("node-ready", func() error { n.Start(); return nil }); err != nil {
			b.Fatal(err)
		}
		n.Stop()
	}
	s.report(b)
}
