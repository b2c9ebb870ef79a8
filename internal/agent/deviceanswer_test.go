package agent

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices/answer"
)

// saidOf are the messages of a pod's events of one reason.
func (b *bench) saidOf(name, reason string) (messages []string) {
	b.Helper()
	list, err := b.kube.CoreV1().Events("").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Reason == reason {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// TestRuntimeIgnoresCDIAnnotations: a pod whose plugin asks for CDI devices by annotations does not start without them either.
func TestRuntimeIgnoresCDIAnnotations(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.rt.Is("containerd", "1.6.20")
	b.rt.IgnoreCDIAnnotations(true)
	b.start()
	b.devices.answers(answer.Answer{Annotations: map[string]string{"cdi.k8s.io/vendor_class": "example.com/widget=0"}})
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	st := b.status("p", "is held", waitsFor("containerd 1.6.20 ignores them"))
	if m := st.Message; !strings.Contains(m, "by annotations cdi.k8s.io/... (example.com/widget=0)") || !strings.Contains(m, "enable_cdi") {
		t.Errorf("message %q", m)
	}
	b.eventually("what was tried is gone", func() bool { _, left := b.rt.Count(); return left == 0 })
	b.rt.Stop()
	b.rt.Is("containerd", "2.1.0")
	b.rt.IgnoreCDIAnnotations(false)
	b.rt.Serve(t)
	b.status("p", "is ready", isReady)
	if a := b.rt.Config(b.running("a")).Annotations; a["cdi.k8s.io/vendor_class"] != "example.com/widget=0" {
		t.Errorf("it runs with the annotations %v", a)
	}
}

// TestADeviceWhereThePodHasAVolume: the pod's status and event name both, and nothing is created; it starts when the plugin has moved.
func TestADeviceWhereThePodHasAVolume(t *testing.T) {
	b := newBench(t)
	node := func(at string) answer.Answer {
		return answer.Answer{Nodes: []answer.Node{{HostPath: "/dev/ttyUSB0", ContainerPath: at, Permissions: "rw"}}}
	}
	b.devices.answers(node("/dev/modem"))
	b.devices.set(1)
	b.create(pod("p", wantsWidget, func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "files", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "files", MountPath: "/dev/modem/"}}
	}))
	const words = `a device of the container (example.com/widget) brings the device node "/dev/ttyUSB0" (rw) to /dev/modem, where the pod mounts its volume "files": mount that elsewhere`
	b.status("p", "is not created", func(st v1.PodStatus) bool {
		if st.Phase != v1.PodPending || len(st.ContainerStatuses) == 0 {
			return false
		}
		w := st.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && w.Message == words
	})
	b.eventually("an event tells it", func() bool {
		said := b.saidOf("p", "Failed")
		return len(said) > 0 && said[0] == "Error: "+words
	})
	if _, c := b.rt.Count(); c != 0 {
		t.Errorf("%d containers", c)
	}
	b.devices.answers(node("/dev/modem0"))
	b.status("p", "is ready", isReady)
}

// TestAPodsAnnotationsReachNoDevice: nobody gets a device by annotating a pod; what is copied to its containers is the agent's own alone.
func TestAPodsAnnotationsReachNoDevice(t *testing.T) {
	b := newBench(t)
	b.rt.HaveCDI("example.com/widget=1")
	var mu sync.Mutex // guards created
	created := map[string]int{}
	b.rt.Creating(func(cfg *cri.ContainerConfig) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range cfg.CDIDevices {
			created[d.Name]++
		}
		for key, value := range cfg.Annotations {
			created[key+"="+value]++
		}
	})
	annotated := func(p *v1.Pod) {
		p.Annotations = map[string]string{"cdi.k8s.io/mine": "example.com/widget=1", "monopod.dev/devices": "mine", "example.com/mine": "x", "example.com/w": "1"}
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "img"}}
	}
	b.devices.answers(answer.Answer{Annotations: map[string]string{"example.com/w": "0"}})
	b.devices.set(1)
	for name, change := range map[string]func(*v1.Pod){"with": wantsWidget, "without": func(*v1.Pod) {}} {
		b.create(pod(name, annotated, change))
		b.rt.Exit(b.running("i"), 0)
		b.status(name, "is ready", isReady)
		b.delete(name, 0)
		b.noPod(name)
	}
	mu.Lock()
	defer mu.Unlock()
	if created["example.com/w=0"] != 1 || created["monopod.dev/devices=record of a"] != 1 {
		t.Errorf("the device's own annotations: %v", created)
	}
	for said := range created {
		if strings.HasPrefix(said, "cdi.k8s.io/") || said == "example.com/widget=1" || said == "example.com/mine=x" || said == "example.com/w=1" || said == "monopod.dev/devices=mine" {
			t.Errorf("a container is created with %s", said)
		}
	}
}

// TestAContainerWhoseDeviceComesBack is made at once when it does, whatever its runtime said of the device that was away, and however long the next attempt was off.
func TestAContainerWhoseDeviceComesBack(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	var tried atomic.Int32
	b.rt.Creating(func(*cri.ContainerConfig) { tried.Add(1) })
	b.rt.Fail("CreateContainer", status.Error(codes.Unknown, "CDI device example.com/widget=0: no spec that can be used defines it"))
	b.create(pod("p", wantsWidget))
	b.eventually("it was tried so often that the next attempt is seconds off", func() bool { return tried.Load() >= 11 })
	b.rt.Fail("CreateContainer", nil)
	begun := time.Now()
	b.devices.set(1)
	b.status("p", "is ready", isReady)
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v; the back-off was at seconds", took)
	}
}

// TestAHandoverWarnsNobody: a pod that gets the device of one that has just ended has no event about the moment between; one that goes on waiting has.
func TestAHandoverWarnsNobody(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", wantsWidget))
	b.status("p", "waits", waitsFor("example.com/widget is not ready"))
	b.devices.set(1)
	b.status("p", "is ready", isReady)
	if said := b.saidOf("p", "DevicesNotReady"); len(said) != 0 {
		t.Errorf("events %q", said)
	}
	b.create(pod("q", wantsWidget))
	b.eventually("an event tells of a wait that lasts", func() bool { return len(b.saidOf("q", "DevicesNotReady")) > 0 })
}
