package podresources

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
)

// The scenarios of Kubernetes' node tests of this API; docs/reference/UPSTREAM-SCENARIOS.md says which test is whose.

// changing is a world in which pods come and go.
type changing struct {
	mu sync.Mutex
	w  world
}

func (c *changing) to(w world) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w = w
}

func (c *changing) now() *world {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.w
	return &w
}

func (c *changing) Pods() []*v1.Pod                            { return c.now().Pods() }
func (c *changing) Pod(namespace, name string) (*v1.Pod, bool) { return c.now().Pod(namespace, name) }
func (c *changing) Devices() []devices.DeviceStatus            { return c.now().Devices() }
func (c *changing) Grants() []devices.GrantRecord              { return c.now().Grants() }

// startOn serves a world that changes.
func startOn(t *testing.T, c *changing) *bench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	dir, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{socket: filepath.Join(dir, "kubelet.sock"), log: &log{}}
	s, err := New(Config{Socket: b.socket, Pods: c, Devices: c, Log: slog.New(slog.NewTextHandler(b.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func nic(name string) devices.GrantedDevice {
	return devices.GrantedDevice{Resource: "example.com/nic", Name: name}
}

// quality gives a pod's first container requests and limits, of which the pod's quality of service follows.
func quality(p *v1.Pod, requests, limits string) *v1.Pod {
	r := &p.Spec.Containers[0].Resources
	if requests != "" {
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(requests)}
	}
	if limits != "" {
		r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(limits), v1.ResourceMemory: resource.MustParse("100Mi")}
	}
	return p
}

// Each call tells of the pods that there are then, whatever they ask for.
func TestPodsComeAndGoBetweenCalls(t *testing.T) {
	var w changing
	c := startOn(t, &w).dial(t)
	plain, one, two, three := pod("pod-00", v1.PodRunning, "cnt"), pod("pod-01", v1.PodRunning, "cnt"), pod("pod-02", v1.PodRunning, "cnt"), pod("pod-03", v1.PodRunning, "cnt")
	grants := []devices.GrantRecord{grant("pod-01", "cnt", nic("0")), grant("pod-03", "cnt", nic("1"))}
	for _, step := range []struct {
		name string
		world
		want string
	}{
		{name: "no pods"},
		{"pods that ask for nothing", world{pods: []*v1.Pod{plain, two}}, "ns/pod-00: cnt; ns/pod-02: cnt"},
		{"some have devices", world{pods: []*v1.Pod{plain, one, two}, grants: grants[:1]}, "ns/pod-00: cnt; ns/pod-01: cnt[example.com/nic 0]; ns/pod-02: cnt"},
		{"one more has come", world{pods: []*v1.Pod{plain, one, two, three}, grants: grants},
			"ns/pod-00: cnt; ns/pod-01: cnt[example.com/nic 0]; ns/pod-02: cnt; ns/pod-03: cnt[example.com/nic 1]"},
		{"one has gone", world{pods: []*v1.Pod{plain, two, three}, grants: grants[1:]}, "ns/pod-00: cnt; ns/pod-02: cnt; ns/pod-03: cnt[example.com/nic 1]"},
		{"shares of a CPU are nothing to tell", world{pods: []*v1.Pod{quality(pod("pod-00", v1.PodRunning, "cnt"), "1500m", "1500m")}}, "ns/pod-00: cnt"},
		{"init containers hand down, restartable ones keep", world{pods: []*v1.Pod{pod("pod-00", v1.PodRunning, "i:init", "regular"), pod("pod-01", v1.PodRunning, "s:restartable", "regular")},
			grants: []devices.GrantRecord{grant("pod-00", "init", nic("0")), grant("pod-01", "restartable", nic("1"))}},
			"ns/pod-00: regular; ns/pod-01: restartable[example.com/nic 1] regular"},
		{"nothing is left", world{}, ""},
	} {
		w.to(step.world)
		l, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
		if got := say(l.GetPodResources()...); err != nil || got != step.want {
			t.Errorf("%s: list\n got %s, %v\nwant %s", step.name, got, err, step.want)
		}
	}
}

// Only pods that have not finished are told of, whatever their quality of service; with all finished there are none.
func TestOnlyRunningPodsAreListed(t *testing.T) {
	var w changing
	c := startOn(t, &w).dial(t)
	of := func(kind string, phase v1.PodPhase) *v1.Pod {
		p := pod(kind, phase, "cnt")
		switch kind[:2] {
		case "gu":
			return quality(p, "1", "1")
		case "bu":
			return quality(p, "400m", "")
		}
		return p
	}
	finished := []*v1.Pod{of("gu-term", v1.PodSucceeded), of("bu-term", v1.PodSucceeded), of("be-term", v1.PodSucceeded), of("be-fail", v1.PodFailed)}
	w.to(world{pods: append([]*v1.Pod{of("gu-run", v1.PodRunning), of("bu-run", v1.PodRunning), of("be-run", v1.PodRunning)}, finished...)})
	l, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
	if got := say(l.GetPodResources()...); err != nil || got != "ns/be-run: cnt; ns/bu-run: cnt; ns/gu-run: cnt" {
		t.Errorf("list %s, %v", got, err)
	}
	w.to(world{pods: finished})
	if l, err = c.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil || len(l.PodResources) > 0 {
		t.Errorf("list %v, %v", l, err)
	}
}

// Get tells of one pod as List does.
func TestGetOfAPod(t *testing.T) {
	var w changing
	c := startOn(t, &w).dial(t)
	get := func(name string) (string, error) {
		g, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: name})
		if err != nil {
			return "", err
		}
		return say(g.PodResources), nil
	}
	if _, err := get("pod-00"); status.Code(err) != codes.NotFound {
		t.Errorf("get of no pod: %v", err)
	}
	w.to(world{pods: []*v1.Pod{pod("pod-00", v1.PodRunning, "cnt"), pod("pod-01", v1.PodRunning, "i:init-00", "s:restartable-init-01", "cnt")},
		grants: []devices.GrantRecord{grant("pod-01", "init-00", nic("0")), grant("pod-01", "restartable-init-01", nic("0")), grant("pod-01", "cnt", nic("1"))}})
	for name, want := range map[string]string{"pod-00": "ns/pod-00: cnt", "pod-01": "ns/pod-01: restartable-init-01[example.com/nic 0] cnt[example.com/nic 1]"} {
		if got, err := get(name); err != nil || got != want {
			t.Errorf("get %s, %v, want %s", got, err, want)
		}
	}
}

// What a plugin is still being asked for is not told: the pod is there, without the device.
func TestAllocationsUnderWayAreNotTold(t *testing.T) {
	pending := nic("0")
	pending.Pending = true
	var w changing
	c := startOn(t, &w).dial(t)
	w.to(world{pods: []*v1.Pod{pod("p", v1.PodPending, "cnt"), pod("q", v1.PodFailed, "cnt")}, grants: []devices.GrantRecord{grant("p", "cnt", pending, nic("1")), grant("q", "cnt", pending)}})
	l, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
	if got := say(l.GetPodResources()...); err != nil || got != "ns/p: cnt[example.com/nic 1]" {
		t.Errorf("list %s, %v", got, err)
	}
	g, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "q"})
	if err != nil || say(g.PodResources) != "ns/q: cnt" {
		t.Errorf("get %v, %v", g, err)
	}
}
