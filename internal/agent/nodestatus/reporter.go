package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/pressure"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/coalesce"
)

const (
	// ReportPeriod is how often the status is written even if nothing has changed.
	ReportPeriod = 5 * time.Minute
	// CheckPeriod is about how often the machine's shortages are looked at, runtimeEvery the runtime's own judgement.
	CheckPeriod  = 10 * time.Second
	runtimeEvery = time.Minute
	// A runtime that is not ready tells nobody when it gets so: it is asked, at first soon.
	retryFirst = 50 * time.Millisecond
	retryMax   = 5 * time.Second
	timeout    = 15 * time.Second
)

// Config says what node this is.
type Config struct {
	Client   kubernetes.Interface
	NodeName string
	// ProviderID is who the node is to those who provide machines; empty: nobody does. One that the object has already stays.
	ProviderID string
	// Adopted is called with each object that is found or made, before anything is said in its status; when it fails, again. Nil: nobody is told.
	Adopted func(ctx context.Context, uid types.UID) error
	// Addresses are the node's internal IPs, Port is where the agent's API is served.
	Addresses []string
	Port      int
	MaxPods   int
	// Version is the agent's version, shown as the kubelet's.
	Version string
	// DataDir is on the file system that pods' data are on.
	DataDir string
	// Fault asks the runtime why it can't run pods; empty: it can.
	Fault func(context.Context) (string, error)
	// RuntimeVersion is NAME://VERSION, as the runtime told of itself when it was last asked for its fault.
	RuntimeVersion func() string
	// Reserved is what of the machine pods may not have.
	Reserved v1.ResourceList
	// Features are what the runtime and its handlers say that they can, as they said when they were last asked; nil: nothing is told of that.
	Features func() (*v1.NodeFeatures, []v1.NodeRuntimeHandler)
	// Devices are the present device resources, by name.
	Devices func() map[string]inventory.Quantity
	// Faults are what is wrong with those that are not allocatable, by name; nil: nothing is told of that.
	Faults func() map[string]string
	// Events tells of the node, which Ref names; nil: nobody is told.
	Events record.EventRecorder
	Ref    *v1.ObjectReference
	Log    *slog.Logger
}

// Reporter keeps the Node object.
type Reporter struct {
	cfg     Config
	machine Machine
	poke    chan struct{}
	ready   chan struct{}
	// registered is closed when the object was first seen or made.
	registered chan struct{}
	recounted  chan struct{}

	mu          sync.Mutex // guards what follows
	allocatable v1.ResourceList
	// counted are those extended resources of it that are no devices of this agent, and never were.
	counted v1.ResourceList
	// object is the last of the API server's versions of the Node that came here: labels, taints and extended resources.
	object *v1.Node
	// lost: the object is gone, or another one, as far as the watch knows.
	lost bool
	// uid is the object's; replaced is closed, and made anew, when it changes.
	uid      types.UID
	replaced chan struct{}

	// of Run's goroutine only
	node     *v1.Node
	patience patience
	// adopted is the UID of the object of which Adopted was told; nil: none yet.
	adopted *types.UID
	// told is the status that events have told of; nil: none yet.
	told *v1.NodeStatus
	// seen are the resources that are, or were, devices of this agent.
	seen map[string]bool
}

// New reads the machine.
func New(cfg Config) (*Reporter, error) {
	m, err := ReadMachine(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if err := m.canSpare(cfg.Reserved); err != nil {
		return nil, err
	}
	r := &Reporter{
		cfg: cfg, machine: m, poke: make(chan struct{}, 1), ready: make(chan struct{}),
		registered: make(chan struct{}), recounted: make(chan struct{}, 1), replaced: make(chan struct{}), seen: map[string]bool{},
	}
	r.allocatable = r.allocatableOf(nil, state{machine: m})
	return r, nil
}

// Memory is the machine's memory in bytes.
func (r *Reporter) Memory() int64 { return r.machine.Resources.Memory().Value() }

// Swap is the machine's swap in bytes.
func (r *Reporter) Swap() int64 {
	if s := r.machine.Info.Swap; s != nil && s.Capacity != nil {
		return *s.Capacity
	}
	return 0
}

// Allocatable is what the node's status says last.
func (r *Reporter) Allocatable() v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatable
}

// Counted are the extended resources that the node's status counts and that neither are nor were devices of this agent: somebody has written them there.
func (r *Reporter) Counted() v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted
}

// Recounted ticks after Counted has changed.
func (r *Reporter) Recounted() <-chan struct{} { return r.recounted }

// Ready is closed when the API server was first told that the node is ready.
func (r *Reporter) Ready() <-chan struct{} { return r.ready }

// Registered is closed when the Node object exists.
func (r *Reporter) Registered() <-chan struct{} { return r.registered }

// Object is the UID of the Node object as it was last found or made, and a channel that is closed when it is another one.
func (r *Reporter) Object() (uid types.UID, replaced <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid, r.replaced
}

// Changed tells that devices or the runtime have changed.
func (r *Reporter) Changed() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run keeps the object until ctx ends. One that somebody deletes is made anew at once: the node is still there.
func (r *Reporter) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(ctx) })
	defer wg.Wait()
	r.tell(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	delay := retryFirst
	var written, asked time.Time
	s := state{machine: r.machine, fault: "the runtime was not asked yet"}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		poked := false
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
			poked = true
		case <-timer.C:
		}
		if r.lostObject() {
			r.node = nil
		}
		s.now = time.Now()
		if poked || s.fault != "" || s.now.Sub(asked) >= runtimeEvery {
			s.fault, asked = r.fault(ctx), s.now
			s.runtimeVersion = r.cfg.RuntimeVersion()
		}
		err := r.report(ctx, s, s.now.Sub(written) >= ReportPeriod, &written)
		if ctx.Err() != nil {
			return
		}
		if soon := (*tooSoon)(nil); errors.As(err, &soon) {
			r.cfg.Log.Warn("the Node object is gone", "node", r.cfg.NodeName, "error", err)
			timer.Reset(time.Until(soon.until))
			continue
		}
		if err != nil {
			r.cfg.Log.Warn("the node's status could not be written; it is tried again", "node", r.cfg.NodeName, "error", err, "in", delay)
		}
		if err != nil || s.fault != "" {
			timer.Reset(delay)
			delay = min(2*delay, retryMax)
		} else {
			timer.Reset(coalesce.Align(CheckPeriod))
			delay = retryFirst
		}
	}
}

func (r *Reporter) fault(ctx context.Context) string {
	fault, err := r.cfg.Fault(ctx)
	if err != nil {
		return "the container runtime does not answer: " + err.Error()
	}
	return fault
}

// report writes the status if it has changed, or if it must.
func (r *Reporter) report(ctx context.Context, s state, must bool, written *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	measured, err := pressure.Measure(r.cfg.DataDir)
	if err != nil {
		return err
	}
	s.pressure = measured.Shortages()
	s.devices = r.cfg.Devices()
	if r.cfg.Faults != nil {
		s.faults = r.cfg.Faults()
	}
	if r.node == nil || r.outdated() {
		r.node = nil
		if err := r.register(ctx, s); err != nil {
			return err
		}
	}
	if err := r.adopt(ctx); err != nil {
		return err
	}
	if err := r.own(ctx, s); err != nil {
		return err
	}
	want := r.apply(r.node.Status, s)
	r.offer(want.Allocatable)
	if must || differs(r.node.Status, want) {
		if err := r.patchStatus(ctx, want); err != nil {
			// Whatever the object is now is asked for anew.
			r.node = nil
			return err
		}
		*written = s.now
	}
	for _, e := range changes(r.cfg.NodeName, r.told, &want) {
		r.tell(e.kind, e.reason, e.message)
	}
	r.told = &want
	if s.fault == "" {
		r.announce()
	}
	return nil
}

// offer makes resources known as those that pods may have, before the API server is told of them.
func (r *Reporter) offer(allocatable v1.ResourceList) {
	counted := r.others(allocatable)
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := !equality.Semantic.DeepEqual(r.counted, counted)
	r.allocatable, r.counted = allocatable, counted
	if changed {
		select {
		case r.recounted <- struct{}{}:
		default:
		}
	}
}

// outdated says that others have changed, since the object last came here as a whole, which resources of theirs its capacity has.
func (r *Reporter) outdated() bool {
	r.mu.Lock()
	now := r.object
	r.mu.Unlock()
	if now == nil || equality.Semantic.DeepEqual(r.others(now.Status.Capacity), r.others(r.node.Status.Capacity)) {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(now.ResourceVersion, r.node.ResourceVersion)
	return err != nil || order > 0
}

func (r *Reporter) announce() {
	select {
	case <-r.ready:
	default:
		r.cfg.Log.Info("the node is ready", "node", r.cfg.NodeName)
		close(r.ready)
	}
}

// register has the object exist with the agent's labels. A new one is made with its status, which saves a write where
// the API server keeps it.
func (r *Reporter) register(ctx context.Context, s state) error {
	nodes := r.cfg.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, r.cfg.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if until := r.patience.until(); time.Now().Before(until) {
			return &tooSoon{until}
		}
		node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName, Labels: r.labels()}, Spec: v1.NodeSpec{ProviderID: r.cfg.ProviderID}}
		for key, value := range map[string]string{annotationDevices: r.ownedNames(s.devices, nil), annotationFaults: faultsOf(s.faults)} {
			if value != "" {
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
			}
		}
		node.Status = r.apply(v1.NodeStatus{}, s)
		created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		if err == nil {
			r.patience.made(time.Now())
			r.told = &v1.NodeStatus{}
			r.found(created)
		}
		return err
	}
	if err != nil {
		return err
	}
	missing := map[string]string{}
	for k, v := range r.labels() {
		if node.Labels[k] != v {
			missing[k] = v
		}
	}
	change := map[string]any{}
	if len(missing) > 0 {
		change["metadata"] = map[string]any{"labels": missing}
	}
	if node.Spec.ProviderID == "" && r.cfg.ProviderID != "" {
		change["spec"] = map[string]any{"providerID": r.cfg.ProviderID}
	}
	if len(change) > 0 {
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		if node, err = nodes.Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("labels and provider id of node %s: %w", r.cfg.NodeName, err)
		}
	}
	if r.told == nil {
		// An earlier run has told of it.
		r.told = node.Status.DeepCopy()
	}
	r.found(node)
	return nil
}

func (r *Reporter) found(node *v1.Node) {
	r.node = node
	r.mu.Lock()
	r.object = node
	if r.uid != node.UID {
		if r.uid != "" {
			r.cfg.Log.Info("the Node object is another one", "node", r.cfg.NodeName, "uid", node.UID, "was", r.uid)
		}
		r.uid = node.UID
		close(r.replaced)
		r.replaced = make(chan struct{})
	}
	r.mu.Unlock()
	select {
	case <-r.registered:
	default:
		close(r.registered)
	}
}

// adopt tells once of each object that it is the node's.
func (r *Reporter) adopt(ctx context.Context) error {
	if r.cfg.Adopted == nil || r.adopted != nil && *r.adopted == r.node.UID {
		return nil
	}
	if err := r.cfg.Adopted(ctx, r.node.UID); err != nil {
		return err
	}
	uid := r.node.UID
	r.adopted = &uid
	return nil
}

func (r *Reporter) patchStatus(ctx context.Context, want v1.NodeStatus) error {
	from, err := json.Marshal(v1.Node{Status: r.node.Status})
	if err != nil {
		return err
	}
	to, err := json.Marshal(v1.Node{Status: want})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Node{})
	if err != nil {
		return err
	}
	node, err := r.cfg.Client.CoreV1().Nodes().PatchStatus(ctx, r.cfg.NodeName, patch)
	if err != nil {
		return err
	}
	r.node = node
	return nil
}

func equal(a, b v1.NodeStatus) bool { return equality.Semantic.DeepEqual(a, b) }
