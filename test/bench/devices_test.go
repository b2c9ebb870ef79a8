package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// The node that the figures of devices are about.
const (
	bigResources, bigDevices = 64, 2000
	// memoryNodes are started of each kind; rest is how long each is left alone before its memory is read.
	memoryNodes = 5
	rest        = 5 * time.Second
)

func bigResource(i int) corev1.ResourceName {
	return corev1.ResourceName(fmt.Sprintf("example.com/resource-%02d", i))
}

// bigCount is how many devices a resource has.
func bigCount(i int) int { return bigDevices*(i+1)/bigResources - bigDevices*i/bigResources }

// plugins starts a device plugin for each resource of the big node, and returns them when the node has all their devices. stop ends them.
func plugins(b *testing.B, n *harness.Node, c kubernetes.Interface) (all []*emulator.Plugin, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, bigResources)
	for i := range bigResources {
		p := emulator.New(emulator.Config{Dir: n.PluginDir(), Resource: string(bigResource(i)), Endpoint: fmt.Sprintf("%d.sock", i), Devices: emulator.Devices(bigCount(i), 0)})
		go func() { ended <- p.Run(ctx) }()
		all = append(all, p)
	}
	stop = func() {
		cancel()
		for range all {
			if err := <-ended; err != nil {
				b.Error(err)
			}
		}
		all = nil
	}
	b.Cleanup(func() { stop() })
	awaitDevices(b, n, c)
	return all, stop
}

// awaitDevices waits until the node has all devices of the big node.
func awaitDevices(b *testing.B, n *harness.Node, c kubernetes.Interface) {
	b.Helper()
	harness.Eventually(b, "all devices are allocatable", func() (bool, string) {
		node, err := c.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		var sum int64
		for i := range bigResources {
			q := node.Status.Allocatable[bigResource(i)]
			sum += q.Value()
		}
		return sum == bigDevices, fmt.Sprint(sum)
	})
}

// specs are CDI specs for the big node, a file for each kind, and one for one more kind, example.com/one. Each device has a node in dir.
func specs(b *testing.B, dir string, big bool) map[string]string {
	b.Helper()
	type m = map[string]any
	files := map[string]string{}
	add := func(kind, file string, count int) {
		var devices []m
		for i := range count {
			node := filepath.Join(dir, fmt.Sprintf("%s-%d", file, i))
			must(b, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
			devices = append(devices, m{"name": fmt.Sprintf("dev-%d", i), "containerEdits": m{"deviceNodes": []m{{"path": "/dev/" + file, "hostPath": node}}}})
		}
		text, err := json.Marshal(m{"cdiVersion": "0.5.0", "kind": kind, "devices": devices})
		must(b, err)
		files[file+".json"] = string(text)
	}
	if !big {
		add("example.com/one", "one", 1)
		return files
	}
	for i := range bigResources {
		add(string(bigResource(i)), fmt.Sprint("resource-", i), bigCount(i))
	}
	return files
}

func client(b *testing.B, n *harness.Node) kubernetes.Interface {
	b.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig())
	must(b, err)
	cfg.QPS, cfg.Burst = 1000, 1000
	return kubernetes.NewForConfigOrDie(cfg)
}

// busyPod sleeps, and asks for so many devices.
func busyPod(node, name string, device corev1.ResourceName, count int64) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"}}}}}
	if count > 0 {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{device: *resource.NewQuantity(count, resource.DecimalSI)}
	}
	return pod
}

// seen is an event of a watch, and when it came.
type seen struct {
	watch.Event
	at time.Time
}

// follow notes when the events of a watch come.
func follow(b *testing.B, w watch.Interface, err error) <-chan seen {
	b.Helper()
	must(b, err)
	b.Cleanup(w.Stop)
	events := make(chan seen, 10000)
	go func() {
		defer close(events)
		for e := range w.ResultChan() {
			events <- seen{e, time.Now()}
		}
	}()
	return events
}

// await returns when the first event came that is as wanted.
func await(b *testing.B, what string, events <-chan seen, wanted func(watch.Event) bool) time.Time {
	b.Helper()
	late := time.After(60 * time.Second)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				b.Fatalf("%s: the watch has ended", what)
			}
			if wanted(e.Event) {
				return e.at
			}
		case <-late:
			b.Fatalf("%s: it did not come", what)
		}
	}
}

// healthOf is what a pod's status says of its only device.
func healthOf(p *corev1.Pod) (r corev1.ResourceHealth) {
	if len(p.Status.ContainerStatuses) == 1 && len(p.Status.ContainerStatuses[0].AllocatedResourcesStatus) == 1 {
		if all := p.Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources; len(all) == 1 {
			return all[0]
		}
	}
	return corev1.ResourceHealth{}
}

// BenchmarkDeviceHealth is how long it takes, on a node with 64 resources and 2,000 devices, from what a plugin says until a watch shows the
// node's and the pod's status: of a device that becomes unhealthy and healthy, and of one that comes and goes. The goal is 50 ms.
func BenchmarkDeviceHealth(b *testing.B) {
	n := start(b, "up")
	c := client(b, n)
	all, _ := plugins(b, n, c)
	ctx := context.Background()
	pods := c.CoreV1().Pods("default")
	podWatch, err := pods.Watch(ctx, metav1.ListOptions{})
	podEvents := follow(b, podWatch, err)
	nodeWatch, err := c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	nodeEvents := follow(b, nodeWatch, err)
	_, err = pods.Create(ctx, busyPod(n.Name, "a", bigResource(0), 1), metav1.CreateOptions{})
	must(b, err)
	var device string
	podSays := func(health string) time.Time {
		return await(b, "the pod's device is "+health, podEvents, func(e watch.Event) bool {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || p.Status.Phase != corev1.PodRunning {
				return false
			}
			r := healthOf(p)
			device = string(r.ResourceID)
			return string(r.Health) == health
		})
	}
	nodeSays := func(capacity, allocatable int) time.Time {
		return await(b, fmt.Sprintf("the node has %d devices, %d healthy", capacity, allocatable), nodeEvents, func(e watch.Event) bool {
			node, ok := e.Object.(*corev1.Node)
			if !ok {
				return false
			}
			has, can := node.Status.Capacity[bigResource(0)], node.Status.Allocatable[bigResource(0)]
			return has.Value() == int64(capacity) && can.Value() == int64(allocatable)
		})
	}
	podSays(v1beta1.Healthy)
	mine, count := device, bigCount(0)
	s := sample{}
	for b.Loop() {
		for _, step := range []struct {
			health      string
			allocatable int
		}{{v1beta1.Unhealthy, count - 1}, {v1beta1.Healthy, count}} {
			begin := time.Now()
			all[0].SetHealth(mine, step.health)
			s["health-to-node"] = append(s["health-to-node"], nodeSays(count, step.allocatable).Sub(begin))
			s["health-to-pod"] = append(s["health-to-pod"], podSays(step.health).Sub(begin))
		}
		for _, step := range []struct {
			health string
			count  int
		}{{v1beta1.Healthy, count + 1}, {"", count}} {
			begin := time.Now()
			all[0].SetHealth("one-more", step.health)
			s["number-to-node"] = append(s["number-to-node"], nodeSays(step.count, step.count).Sub(begin))
		}
	}
	s.report(b)
}

// BenchmarkDeviceMemory compares the memory of nodes without devices with that of nodes with 64 resources and 2,000 devices, of plugins and of
// CDI specs. The goal is 10 MB more. It is the anonymous part of the PSS: how much of the program's own file is in memory depends on what else the
// machine does, by tens of megabytes; all of it is printed.
func BenchmarkDeviceMemory(b *testing.B) {
	kinds := []string{"none", "plugins", "cdi"}
	figures, all := map[string][]int{}, map[string][]int{}
	for range memoryNodes {
		for _, kind := range kinds {
			anon, sum := memoryOf(b, kind)
			figures[kind], all[kind] = append(figures[kind], anon), append(all[kind], sum)
		}
	}
	for b.Loop() { // a node's memory is no matter of rounds
	}
	median := func(kind string) float64 { return float64(slices.Sorted(slices.Values(figures[kind]))[memoryNodes/2]) }
	fmt.Printf("PSS in kB: anonymous %v, all %v\n", figures, all)
	b.ReportMetric(median("none"), "none-anon-kB")
	b.ReportMetric(median("plugins")-median("none"), "plugins-more-kB")
	b.ReportMetric(median("cdi")-median("none"), "cdi-more-kB")
	b.ReportMetric(0, "ns/op")
}

// memoryOf is the PSS of a node of the kind, in kB: what of it is anonymous, and all.
func memoryOf(b *testing.B, kind string) (anon, all int) {
	b.Helper()
	o := harness.Options{Args: []string{"--log-level", "info"}}
	if kind == "cdi" {
		nodes, err := os.MkdirTemp("", "mpb")
		must(b, err)
		defer os.RemoveAll(nodes)
		o.CDISpecs = specs(b, nodes, true)
	}
	n := harness.StartNode(b, o)
	c := client(b, n)
	switch kind {
	case "plugins":
		_, stop := plugins(b, n, c)
		defer stop()
	case "cdi":
		awaitDevices(b, n, c)
	}
	time.Sleep(rest) //nolint:forbidigo // a node that does nothing is what is measured
	anon, all = memory(b, n.PID())
	n.Stop()
	return anon, all
}

// memory is the PSS of a process, in kB: what of it is anonymous, and all.
func memory(b *testing.B, pid int) (anon, all int) {
	b.Helper()
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	must(b, err)
	for line := range strings.Lines(string(rollup)) {
		_, _ = fmt.Sscanf(line, "Pss_Anon: %d kB", &anon) // or it is another line
		_, _ = fmt.Sscanf(line, "Pss: %d kB", &all)
	}
	if anon == 0 || all == 0 {
		b.Fatalf("no figures in\n%s", rollup)
	}
	return anon, all
}

// BenchmarkPodWithDevice compares, in turns, the time from a pod's POST until a watch shows it Running: of a pod with one CDI device, and of one
// without. The goal is 2 ms more.
func BenchmarkPodWithDevice(b *testing.B) {
	n := harness.StartNode(b, harness.Options{Args: []string{"--log-level", "info"}, CDISpecs: specs(b, b.TempDir(), false)})
	n.LoadImage(harness.Archive(b, image, images.Busybox))
	ctx := context.Background()
	pods := client(b, n).CoreV1().Pods("default")
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	events := follow(b, w, err)
	s := sample{}
	made := 0
	round := func(figure string, devices int64) {
		made++
		name := fmt.Sprint("p", made)
		begin := time.Now()
		_, err := pods.Create(ctx, busyPod(n.Name, name, "example.com/one", devices), metav1.CreateOptions{})
		must(b, err)
		running := await(b, name+" runs", events, func(e watch.Event) bool {
			p, ok := e.Object.(*corev1.Pod)
			return ok && p.Name == name && p.Status.Phase == corev1.PodRunning
		})
		s[figure] = append(s[figure], running.Sub(begin))
		grace := int64(1)
		must(b, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
		await(b, name+" is gone", events, func(e watch.Event) bool {
			p, ok := e.Object.(*corev1.Pod)
			return ok && p.Name == name && e.Type == watch.Deleted
		})
	}
	for range warmUps {
		round("without", 0)
		round("with", 1)
	}
	clear(s)
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			round("without", 0)
			round("with", 1)
		} else {
			round("with", 1)
			round("without", 0)
		}
	}
	b.ReportMetric(quantile(s["with"], 0.5)-quantile(s["without"], 0.5), "more-ms")
	s.report(b)
}
