package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/test/crifake"
	"monopod.dev/monopod/test/testcerts"
)

// bench is an agent between a fake API server and a fake runtime.
type bench struct {
	*testing.T
	dir     string
	rt      *crifake.Runtime
	kube    *fake.Clientset
	devices *fakeDevices
	cfg     Config
	stop    func()
}

const patience = time.Minute

// newBench starts an agent; objects are there before it.
func newBench(t *testing.T) *bench {
	t.Helper()
	// Registered first, so that it runs last.
	t.Cleanup(func() { goleak.VerifyNone(t) })
	// A unix socket's path is short.
	dir, err := os.MkdirTemp("/tmp", "mpa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	root := "/" + filepath.Base(dir)
	t.Cleanup(func() {
		host, err := cgroup.Detect()
		if err == nil {
			err = host.RemoveTree(root)
		}
		if err != nil {
			t.Error(err)
		}
	})
	ca := testcerts.New(t, dir)
	cert, key := ca.Serving(t)
	b := &bench{
		T: t, dir: dir, rt: crifake.Start(t, filepath.Join(dir, "cri.sock")), kube: fake.NewClientset(),
		devices: &fakeDevices{changed: make(chan struct{}, 1)},
	}
	b.cfg = Config{
		NodeName: "node", CRISocket: b.rt.Socket, Devices: b.devices, CgroupRoot: root, PodLogsDir: filepath.Join(dir, "logs"),
		DataDir: dir, Address: "127.0.0.1", NodeIPs: []string{"127.0.0.1"}, ServingCert: cert, ServingKey: key, ClientCA: ca.CAFile(), MaxPods: 10,
		Version: "0.1", Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	b.kube.PrependReactor("patch", "pods", countVersions(b.kube.Tracker()))
	b.kube.PrependWatchReactor("pods", watchCopies(b.kube.Tracker()))
	b.rt.HaveImage("img")
	b.rt.HaveCDI("example.com/widget=0")
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// countVersions gives a patched object a new resource version, as an API server does and the fake does not: by it the agent tells which of two
// versions of an object is the newer one.
func countVersions(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	var version atomic.Int64
	version.Store(1) // that of all pods here
	react := clienttesting.ObjectReaction(tracker)
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchActionImpl)
		var body map[string]any
		if err := json.Unmarshal(patch.Patch, &body); err != nil {
			return true, nil, err
		}
		meta, _ := body["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["resourceVersion"] = strconv.FormatInt(version.Add(1), 10)
		body["metadata"] = meta
		raw, err := json.Marshal(body)
		if err != nil {
			return true, nil, err
		}
		patch.Patch = raw
		return react(patch)
	}
}

// copied is a watch that gives away copies, as an API server does. The fake's begins with the objects that it keeps.
type copied struct {
	watch.Interface
	events chan watch.Event
	ended  chan struct{}
	end    func()
}

func watchCopies(tracker clienttesting.ObjectTracker) clienttesting.WatchReactionFunc {
	return func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		if err != nil {
			return true, nil, err
		}
		c := &copied{Interface: w, events: make(chan watch.Event), ended: make(chan struct{})}
		c.end = sync.OnceFunc(func() { close(c.ended) })
		go c.copy()
		return true, c, nil
	}
}

func (c *copied) copy() {
	defer close(c.events)
	for e := range c.Interface.ResultChan() {
		e.Object = e.Object.DeepCopyObject()
		select {
		case c.events <- e:
		case <-c.ended:
			return
		}
	}
}

func (c *copied) ResultChan() <-chan watch.Event { return c.events }

func (c *copied) Stop() {
	c.end()
	c.Interface.Stop()
}

// start runs an agent; b.stop ends it.
func (b *bench) start() {
	b.Helper()
	a := &Agent{cfg: b.cfg, log: b.cfg.Log, kube: b.kube, ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					b.Errorf("the agent ended with %v", err)
				}
			case <-time.After(patience):
				b.Error("the agent did not end")
			}
		})
	}
	select {
	case <-a.Ready():
	case err := <-done:
		b.Fatalf("the agent ended with %v", err)
	case <-time.After(patience):
		b.Fatal("the agent did not get ready")
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// pod is a pod bound to the node.
func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: v1.PodSpec{
			NodeName: "node", RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "a", Image: "img", ImagePullPolicy: v1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log",
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func (b *bench) create(p *v1.Pod) {
	b.Helper()
	if _, err := b.kube.CoreV1().Pods(p.Namespace).Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// delete marks the pod as deleted, as the API server does for a deletion with grace.
func (b *bench) delete(name string, grace int64) {
	b.Helper()
	p, err := b.kube.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	if _, err := b.kube.CoreV1().Pods("default").Update(b.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// eventually waits until ok says so; what is said when it does not.
func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			all, err := b.kube.CoreV1().Pods("").List(b.Context(), metav1.ListOptions{})
			if err == nil {
				for _, p := range all.Items {
					st, _ := json.Marshal(p.Status)
					b.Logf("pod %s: %s", p.Name, st)
				}
			}
			b.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// status waits until the pod's status is as wanted.
func (b *bench) status(name, what string, ok func(v1.PodStatus) bool) v1.PodStatus {
	b.Helper()
	var st v1.PodStatus
	b.eventually("pod "+name+" "+what, func() bool {
		p, err := b.kube.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		st = p.Status
		return ok(st)
	})
	return st
}

func (b *bench) phase(name string, phase v1.PodPhase) v1.PodStatus {
	b.Helper()
	return b.status(name, "is "+string(phase), func(st v1.PodStatus) bool { return st.Phase == phase })
}

// noPod waits until the API server has no such pod.
func (b *bench) noPod(name string) {
	b.Helper()
	b.eventually("pod "+name+" is gone", func() bool {
		_, err := b.kube.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
		return err != nil
	})
}

// running waits until one container of this name runs, and returns its ID.
func (b *bench) running(name string) (id string) {
	b.Helper()
	b.eventually("container "+name+" runs", func() bool {
		ids := b.rt.Running(name)
		if len(ids) == 1 {
			id = ids[0]
		}
		return id != ""
	})
	return id
}

// nothingLeft checks that the pod's files are gone.
func (b *bench) nothingLeft(name string) {
	b.Helper()
	b.eventually("the files of pod "+name+" are gone", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(b.dir, "pods", "uid-"+name))
		logs, _ := filepath.Glob(filepath.Join(b.cfg.PodLogsDir, "default_"+name+"_*"))
		return len(dirs)+len(logs) == 0
	})
}

// events are the reasons of the events so far.
func (b *bench) events() map[string]int {
	list, err := b.kube.CoreV1().Events("").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	reasons := map[string]int{}
	for _, e := range list.Items {
		reasons[e.Reason]++
	}
	return reasons
}

// fakeDevices has n widgets.
type fakeDevices struct {
	changed chan struct{}

	mu      sync.Mutex // guards what follows
	n       int
	granted map[string]bool
	refuse  string // the words of a refusal; empty: none
	// asked are the requests of the pods that have devices; each of their containers has device 0, whose health and why that is are:
	asked  map[string]devices.PodRequest
	health devices.Health // empty: healthy
	why    string
	answer *answer.Answer // what a container is given; nil: a bit of everything
	// silent: who gives the devices does not answer as long as it is not closed; nil: it does at once.
	silent chan struct{}
	// reconciled says that Reconcile was called, with these.
	reconciled bool
	holdings   []devices.Holding
}

func (f *fakeDevices) set(n int) {
	f.mu.Lock()
	f.n = n
	f.mu.Unlock()
	f.tick()
}

// answers has containers be given this from now on.
func (f *fakeDevices) answers(a answer.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = &a
}

func (f *fakeDevices) tick() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *fakeDevices) Resources() map[string]inventory.Quantity {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(f.n)
	return map[string]inventory.Quantity{"example.com/widget": {Capacity: n, Allocatable: n}}
}

func (f *fakeDevices) Faults() map[string]string { return nil }

func (f *fakeDevices) Subscribe() (ticks <-chan struct{}, stop func()) { return f.changed, func() {} }

func (f *fakeDevices) Admit(ctx context.Context, req devices.PodRequest) (devices.Verdict, error) {
	v, err := f.admit(req)
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent != nil && v.Phase == devices.Admitted {
		select {
		case <-silent:
		case <-ctx.Done():
			return devices.Verdict{}, ctx.Err()
		}
	}
	return v, err
}

func (f *fakeDevices) admit(req devices.PodRequest) (devices.Verdict, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.refuse != "":
		return devices.Verdict{Phase: devices.Failed, Reason: devices.ReasonRefused, Message: f.refuse}, nil
	case !f.granted[req.UID] && (!f.reconciled || len(f.granted) >= f.n):
		return devices.Verdict{Phase: devices.Held, Reason: devices.ReasonDevicesNotReady, Message: "example.com/widget is not ready"}, nil
	}
	if f.granted == nil {
		f.granted = map[string]bool{}
	}
	if f.asked == nil {
		f.asked = map[string]devices.PodRequest{}
	}
	f.granted[req.UID], f.asked[req.UID] = true, req
	return devices.Verdict{Phase: devices.Admitted}, nil
}

// turns changes the health of device 0.
func (f *fakeDevices) turns(health devices.Health, why string) {
	f.mu.Lock()
	f.health, f.why = health, why
	f.mu.Unlock()
	f.tick()
}

func (f *fakeDevices) Devices() (all []devices.DeviceStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.n {
		all = append(all, devices.DeviceStatus{Device: inventory.Device{Resource: "example.com/widget", Name: strconv.Itoa(i)}})
	}
	return all
}

func (f *fakeDevices) GrantsOf(uid string) (all []devices.GrantRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.granted[uid] {
		return nil
	}
	req := f.asked[uid]
	for _, c := range req.Containers {
		d := devices.GrantedDevice{Resource: "example.com/widget", Name: "0", Aliases: []string{"uuid-0"}, Origin: "w.sock", Pending: f.silent != nil, Health: cmp.Or(f.health, devices.Healthy), Why: f.why}
		all = append(all, devices.GrantRecord{PodUID: uid, PodNamespace: req.Namespace, PodName: req.Name, Container: c.Name, Devices: []devices.GrantedDevice{d}})
	}
	return all
}

func (f *fakeDevices) Grants() (all []devices.GrantRecord) {
	f.mu.Lock()
	uids := slices.Sorted(maps.Keys(f.granted))
	f.mu.Unlock()
	for _, uid := range uids {
		all = append(all, f.GrantsOf(uid)...)
	}
	return all
}

func (f *fakeDevices) Grant(_ context.Context, c source.Container) (devices.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.granted[c.PodUID] {
		return devices.Grant{}, errdefs.ErrNotFound
	}
	if f.answer != nil {
		return devices.Grant{Answer: *f.answer, Record: "record of " + c.Name}, nil
	}
	return devices.Grant{
		Answer: answer.Answer{
			CDIDevices:  []string{"example.com/widget=0"},
			Nodes:       []answer.Node{{HostPath: "/dev/null", ContainerPath: "/dev/widget", Permissions: "rw"}},
			Mounts:      []answer.Mount{{HostPath: "/etc/hostname", ContainerPath: "/widget", ReadOnly: true}},
			Envs:        map[string]string{"WIDGET": "0", "MINE": "theirs"},
			Annotations: map[string]string{"example.com/w": "0"},
		},
		Record: "record of " + c.Name,
	}, nil
}

func (f *fakeDevices) Release(_ context.Context, uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.granted, uid)
	return nil
}

func (f *fakeDevices) Reconcile(_ context.Context, live map[string]bool, holdings []devices.Holding) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holdings, f.reconciled = holdings, true
	f.tick()
	for uid := range f.granted {
		if !live[uid] {
			delete(f.granted, uid)
		}
	}
	return nil
}

func wantsWidget(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/widget": resource.MustParse("1")}
}
