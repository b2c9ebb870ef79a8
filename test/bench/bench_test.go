package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const image = "localhost/bench/busybox:1"

func start(b *testing.B, command string) *harness.Node {
	b.Helper()
	n := harness.StartNode(b, harness.Options{Command: command, Args: []string{"--log-level", "info"}})
	n.LoadImage(harness.Archive(b, image, images.Busybox))
	return n
}

// sample collects durations by name and reports their medians.
type sample map[string][]time.Duration

func (s sample) time(name string, f func() error) error {
	begin := time.Now()
	err := f()
	s[name] = append(s[name], time.Since(begin))
	return err
}

func (s sample) report(b *testing.B) {
	for name, all := range s {
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
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

// BenchmarkPod is one pod's life through CRI.
func BenchmarkPod(b *testing.B) {
	n := start(b, "runtime")
	conn, err := grpc.NewClient("unix://"+n.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	rt := cri.NewRuntimeServiceClient(conn)
	s := sample{}
	for i := 0; b.Loop(); i++ {
		onePod(b, rt, s, filepath.Join(n.Dir, "pods"), i)
	}
	s.report(b)
	reportMemory(b, n)
}

func onePod(b *testing.B, rt cri.RuntimeServiceClient, s sample, logs string, i int) {
	b.Helper()
	ctx := context.Background()
	namespaces := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	cfg := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "bench", Namespace: "bench", Uid: fmt.Sprint("uid-", i)}, Hostname: "bench", LogDirectory: logs,
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	}
	ctr := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: image}, Command: []string{"sleep", "3600"}, LogPath: fmt.Sprint(i, ".log"),
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 128},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces,
				Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}}},
	}
	var sandbox, container string
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(s.time("pod-up", func() error {
		run, err := rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			return err
		}
		sandbox = run.GetPodSandboxId()
		created, err := rt.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: ctr, SandboxConfig: cfg})
		if err != nil {
			return err
		}
		container = created.GetContainerId()
		_, err = rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container})
		return err
	}))
	must(s.time("exec-sync", func() error {
		_, err := rt.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: container, Cmd: []string{"true"}, Timeout: 10})
		return err
	}))
	must(s.time("pod-down", func() error {
		if _, err := rt.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container}); err != nil {
			return err
		}
		if _, err := rt.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: container}); err != nil {
			return err
		}
		if _, err := rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
			return err
		}
		_, err := rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
		return err
	}))
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
