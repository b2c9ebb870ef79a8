package agent

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
)

// widgetIs says that the first container's status tells this health of its device, with these words.
func widgetIs(health v1.ResourceHealthStatus, words string) func(v1.PodStatus) bool {
	return func(st v1.PodStatus) bool {
		if len(st.ContainerStatuses) == 0 || len(st.ContainerStatuses[0].AllocatedResourcesStatus) != 1 {
			return false
		}
		r := st.ContainerStatuses[0].AllocatedResourcesStatus[0]
		if r.Name != "example.com/widget" || len(r.Resources) != 1 || r.Resources[0].ResourceID != "0" || r.Resources[0].Health != health {
			return false
		}
		m := r.Resources[0].Message
		return m == nil && words == "" || m != nil && *m == words
	}
}

// message is that of an event.
func (b *bench) message(reason string) (kind, message string) {
	list, err := b.kube.CoreV1().Events("").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			kind, message = e.Type, e.Message
		}
	}
	return kind, message
}

// TestDeviceHealth: the status follows the health of a granted device, and an event tells of each change, also of one while the agent was away.
func TestDeviceHealth(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.create(pod("p", wantsWidget, func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "img", Resources: p.Spec.Containers[0].Resources}}
	}))
	b.rt.Exit(b.running("i"), 0)
	b.status("p", "is ready", isReady)
	b.status("p", "tells that the device is healthy", widgetIs(v1.ResourceHealthStatusHealthy, ""))

	begun := time.Now()
	b.devices.turns(devices.Unhealthy, "it is hot")
	st := b.status("p", "tells that it is unhealthy", widgetIs(v1.ResourceHealthStatusUnhealthy, "it is hot"))
	t.Logf("told after %s", time.Since(begun))
	if !isReady(st) || len(st.InitContainerStatuses[0].AllocatedResourcesStatus) != 1 {
		t.Errorf("status %+v", st)
	}
	b.eventually("an event tells of it", func() bool { return b.events()["DeviceUnhealthy"] == 1 })
	if kind, m := b.message("DeviceUnhealthy"); kind != v1.EventTypeWarning || m != "device 0 of example.com/widget, granted to containers i, a, is not healthy any more: it is hot" {
		t.Errorf("event %s %q", kind, m)
	}

	b.devices.turns(devices.Healthy, "")
	b.status("p", "tells that it is healthy again", widgetIs(v1.ResourceHealthStatusHealthy, ""))
	b.eventually("an event tells of it", func() bool { return b.events()["DeviceHealthy"] == 1 })
	if kind, _ := b.message("DeviceHealthy"); kind != v1.EventTypeNormal {
		t.Errorf("event %s", kind)
	}

	b.stop()
	b.devices.turns(devices.Unknown, "it is not there any more")
	b.start()
	b.status("p", "tells that nobody knows it", widgetIs(v1.ResourceHealthStatusUnknown, "it is not there any more"))
	b.eventually("an event tells of it", func() bool { return b.events()["DeviceUnknown"] == 1 })
	b.stop()
	b.start()
	b.create(pod("q"))
	b.status("q", "is ready", isReady)
	if e := b.events(); e["DeviceUnhealthy"] != 1 || e["DeviceUnknown"] != 1 || e["DeviceHealthy"] != 1 {
		t.Errorf("events %v", e)
	}
}

// TestFinishedPodKeepsTheHealthOfItsDevices: they are given back, and may be another's.
func TestFinishedPodKeepsTheHealthOfItsDevices(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.create(pod("p", wantsWidget, func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	id := b.running("a")
	b.devices.turns(devices.Unhealthy, "it is hot")
	b.status("p", "tells that it is unhealthy", widgetIs(v1.ResourceHealthStatusUnhealthy, "it is hot"))
	b.rt.Exit(id, 1)
	b.phase("p", v1.PodFailed)
	b.eventually("the device is given back", func() bool { return len(b.devices.Grants()) == 0 })
	b.devices.turns(devices.Healthy, "")
	b.stop()
	b.start()
	b.create(pod("q"))
	b.status("q", "is ready", isReady)
	b.status("p", "tells how it was", widgetIs(v1.ResourceHealthStatusUnhealthy, "it is hot"))
}

// TestUnhealthyDevicesFail: a pod that wants to fails when its device is unhealthy, also if that has recovered before the pod has ended.
func TestUnhealthyDevicesFail(t *testing.T) {
	for _, policy := range []string{"fail", "fail-after=200ms"} {
		t.Run(policy, func(t *testing.T) { unhealthyDevicesFail(t, policy) })
	}
}

func unhealthyDevicesFail(t *testing.T, policy string) {
	b := newBench(t)
	b.devices.set(1)
	b.create(pod("p", wantsWidget, func(p *v1.Pod) { p.Annotations = map[string]string{"monopod.dev/unhealthy-devices": policy} }))
	b.status("p", "is ready", isReady)
	b.devices.turns(devices.Unhealthy, "it is hot")
	st := b.phase("p", v1.PodFailed)
	if st.Reason != "UnhealthyDevices" || !strings.Contains(st.Message, "device 0 of example.com/widget, granted to container a, is not healthy any more: it is hot") {
		t.Errorf("status %s %q", st.Reason, st.Message)
	}
	if len(b.rt.Running("a")) != 0 {
		t.Error("it runs on")
	}
	b.eventually("an event tells of it", func() bool { return b.events()["UnhealthyDevices"] == 1 })
	b.eventually("the device is given back", func() bool { return len(b.devices.Grants()) == 0 })
}

// TestPodResources: exporters see the node's pods and what they have, from when the agent knows them until it ends.
func TestPodResources(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.cfg.PodResourcesSocket = filepath.Join(b.dir, "pod-resources", "kubelet.sock")
	b.start()
	b.devices.set(2)
	b.create(pod("p", wantsWidget))
	b.create(pod("q"))
	b.status("p", "is ready", isReady)
	b.status("q", "is ready", isReady)
	conn, err := grpc.NewClient("unix://"+b.cfg.PodResourcesSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := podresources.NewPodResourcesListerClient(conn)
	list, err := c.List(t.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.PodResources) != 2 || list.PodResources[0].Name != "p" || list.PodResources[1].Name != "q" {
		t.Fatalf("list %v, %v", list, err)
	}
	d := list.PodResources[0].Containers[0].Devices
	if len(d) != 1 || d[0].ResourceName != "example.com/widget" || strings.Join(d[0].DeviceIds, " ") != "0 uuid-0" || len(list.PodResources[1].Containers[0].Devices) > 0 {
		t.Errorf("list %v", list)
	}
	if all, err := c.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{}); err != nil || len(all.Devices) != 2 {
		t.Errorf("allocatable %v, %v", all, err)
	}
	b.delete("p", 0)
	b.noPod("p")
	b.eventually("p is not listed any more", func() bool {
		_, err := c.Get(t.Context(), &podresources.GetPodResourcesRequest{PodNamespace: "default", PodName: "p"})
		return grpcstatus.Code(err) == codes.NotFound
	})
	b.stop()
	if _, err := c.List(t.Context(), &podresources.ListPodResourcesRequest{}); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("list after the end: %v", err)
	}
}

// TestAVerdictOutlivesTheAgent: an agent that is started while containers are being stopped goes on to end the pod, though what spoke against it is over.
func TestAVerdictOutlivesTheAgent(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.rt.Deaf("a")
	b.create(pod("p", wantsWidget, func(p *v1.Pod) {
		long := int64(3600)
		p.Annotations, p.Spec.TerminationGracePeriodSeconds = map[string]string{"monopod.dev/unhealthy-devices": "fail"}, &long
	}))
	b.status("p", "is ready", isReady)
	id := b.running("a")
	b.devices.turns(devices.Unhealthy, "it is hot")
	told := func(st v1.PodStatus) bool { return st.Reason == "UnhealthyDevices" }
	b.status("p", "is to end", told)
	b.stop()
	b.devices.turns(devices.Healthy, "")
	b.start()
	b.create(pod("q"))
	b.status("q", "is ready", isReady)
	b.rt.Exit(id, 0)
	if st := b.phase("p", v1.PodFailed); !told(st) || !strings.Contains(st.Message, "it is hot") {
		t.Errorf("status %s %q", st.Reason, st.Message)
	}
	b.eventually("the device is given back", func() bool { return len(b.devices.Grants()) == 0 })
}
