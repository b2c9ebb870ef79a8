package agent

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/test/crifake"
)

// The scenarios of Kubernetes' node tests in which the API server, the runtime or a registry plays a part; docs/reference/UPSTREAM-SCENARIOS.md says
// which test is whose.

// exporter serves PodResources from the next start on; what it returns lists who has widgets, as "pod/container".
func (b *bench) exporter() (holders func() []string) {
	b.Helper()
	b.cfg.PodResourcesSocket = filepath.Join(b.dir, "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient("unix://"+b.cfg.PodResourcesSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return func() (all []string) {
		b.Helper()
		list, err := podresources.NewPodResourcesListerClient(conn).List(b.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range list.PodResources {
			for _, c := range p.Containers {
				if len(c.Devices) > 0 {
					all = append(all, p.Name+"/"+c.Name)
				}
			}
		}
		return all
	}
}

// TestAPodDeletedWhileTheAgentWasAwayGivesItsDevicesBack: its containers are ended, nobody is told of it any more, and another gets the device.
func TestAPodDeletedWhileTheAgentWasAwayGivesItsDevicesBack(t *testing.T) {
	b := newBench(t)
	b.stop()
	holders := b.exporter()
	b.start()
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	b.status("p", "is ready", isReady)
	if got := holders(); !slices.Equal(got, []string{"p/a"}) {
		t.Errorf("the device is with %v", got)
	}
	b.stop()
	if err := b.kube.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.eventually("its containers and its grant are gone", func() bool {
		s, c := b.rt.Count()
		return s+c == 0 && len(b.devices.Grants()) == 0
	})
	b.nothingLeft("p")
	if got := holders(); len(got) > 0 {
		t.Errorf("the device is with %v", got)
	}
	b.create(pod("q", wantsWidget))
	b.status("q", "is ready", isReady)
	if got := holders(); !slices.Equal(got, []string{"q/a"}) {
		t.Errorf("the device is with %v", got)
	}
}

// TestAFinishedPodIsNotAdmittedAgain: it stays as it ended when the agent starts again and there are no devices any more.
func TestAFinishedPodIsNotAdmittedAgain(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.create(pod("p", wantsWidget, func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	b.rt.Exit(b.running("a"), 0)
	b.phase("p", v1.PodSucceeded)
	b.stop()
	b.devices.set(0)
	b.devices.mu.Lock()
	b.devices.asked = nil
	b.devices.mu.Unlock()
	b.start()
	b.create(pod("q"))
	b.status("q", "is ready", isReady)
	b.create(pod("r", wantsWidget))
	b.status("r", "waits", waitsFor("example.com/widget is not ready"))
	if st := b.phase("p", v1.PodSucceeded); st.Reason != "" {
		t.Errorf("status %+v", st)
	}
	b.devices.mu.Lock()
	defer b.devices.mu.Unlock()
	if _, ok := b.devices.asked["uid-p"]; ok {
		t.Error("it was given devices again")
	}
}

// TestDeviceHealthOfAPodThatCannotStart: the status tells of the devices also while the image cannot be had.
func TestDeviceHealthOfAPodThatCannotStart(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.rt.PullFails("broken", grpcstatus.Error(codes.Unavailable, "no route"))
	b.create(pod("p", wantsWidget, func(p *v1.Pod) { p.Spec.Containers[0].Image = "broken" }))
	waits := func(also func(v1.PodStatus) bool) func(v1.PodStatus) bool {
		return func(st v1.PodStatus) bool {
			if len(st.ContainerStatuses) != 1 || st.ContainerStatuses[0].State.Waiting == nil {
				return false
			}
			reason := st.ContainerStatuses[0].State.Waiting.Reason
			return st.Phase == v1.PodPending && (reason == "ErrImagePull" || reason == "ImagePullBackOff") && also(st)
		}
	}
	b.status("p", "waits for its image, with a healthy device", waits(widgetIs(v1.ResourceHealthStatusHealthy, "")))
	b.devices.turns(devices.Unhealthy, "it is hot")
	b.status("p", "waits for its image, with an unhealthy device", waits(widgetIs(v1.ResourceHealthStatusUnhealthy, "it is hot")))
	b.rt.PullFails("broken", nil)
	b.delete("p", 0)
	b.noPod("p")
}

// forgetful is a runtime that cannot tell what runs, for its first calls.
type forgetful struct {
	*crifake.Runtime
	left atomic.Int64 // so many lists fail
}

func (f *forgetful) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if f.left.Add(-1) >= 0 {
		return nil, grpcstatus.Error(codes.Unknown, "it cannot tell now")
	}
	return f.Runtime.ListPodSandbox(ctx, req)
}

func (f *forgetful) ListContainers(ctx context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	if f.left.Add(-1) >= 0 {
		return nil, grpcstatus.Error(codes.Unknown, "it cannot tell now")
	}
	return f.Runtime.ListContainers(ctx, req)
}

// TestPodsKeepTheirDevicesWhenTheRuntimeCannotTellWhatRuns: an agent that starts then touches no pod, grants nothing, and goes on when it can.
func TestPodsKeepTheirDevicesWhenTheRuntimeCannotTellWhatRuns(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	before := b.status("p", "is ready", isReady).ContainerStatuses[0].ContainerID
	b.stop()
	holders := b.exporter()

	f := &forgetful{Runtime: b.rt}
	f.left.Store(3)
	b.cfg.CRISocket = filepath.Join(b.dir, "forgetful.sock")
	l, err := net.Listen("unix", b.cfg.CRISocket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, f)
	cri.RegisterImageServiceServer(server, f)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }() // it ends with Stop
	t.Cleanup(func() { b.stop(); server.Stop(); <-served })
	b.devices.mu.Lock()
	b.devices.reconciled = false
	b.devices.mu.Unlock()
	b.start()
	b.create(pod("q", wantsWidget))
	b.status("q", "waits", waitsFor("example.com/widget is not ready"))
	b.eventually("the runtime has failed, and then told", func() bool {
		b.devices.mu.Lock()
		defer b.devices.mu.Unlock()
		return f.left.Load() < 0 && b.devices.reconciled
	})
	st := b.status("p", "is ready", isReady)
	if st.ContainerStatuses[0].ContainerID != before || st.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it was touched: %+v", st.ContainerStatuses)
	}
	if got := holders(); !slices.Equal(got, []string{"p/a"}) {
		t.Errorf("the device is with %v", got)
	}
}
