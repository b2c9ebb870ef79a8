package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/internal/netpolicy/table"
	"monopod.dev/monopod/internal/network/podnet"
)

// userAgent is the role's name at the API server, component its name in events.
const (
	userAgent = "monopod-netpolicy"
	component = "network-policy"
)

// The pauses after which rules that could not be written are tried again: the first, which doubles, and the longest.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// Config is what the role needs before it runs.
type Config struct {
	// Networks are those that the node's pods are connected to.
	Networks podnet.Networks
	// NodeName is this node's name in the API.
	NodeName string
	// Log; nil: none.
	Log *slog.Logger
}

// Role enforces network policies. Its methods are safe for concurrent use.
type Role struct {
	log   *slog.Logger
	table rules
	wake  chan struct{}
	// These are the loop's.
	compiler *compile.Compiler
	policies []*networkingv1.NetworkPolicy // as the compiler knows them
	applied  bool                          // rules may be in the kernel
	feeds    *feeds
	pause    time.Duration
	told     map[types.UID]string // what events have said of policies
	recorder record.EventRecorder
	client   kubernetes.Interface

	mu       sync.Mutex
	facts    facts
	enforced bool          // there are rules in the kernel, if only those of the process before
	unable   error         // why the kernel cannot do it
	changed  chan struct{} // closed, and made anew, when one of these has changed
}

// rules is what the role has of the kernel.
type rules interface {
	// Apply has packets judged by rules from now on. An error that is FailedPrecondition is the kernel's inability.
	Apply(r *compile.Rules) error
	// Remove takes all rules away. It is idempotent.
	Remove() error
	Close()
}

var _ rules = &table.Table{}

// New opens the way to the kernel, in the network namespace of the calling thread, and learns whose addresses there are (Connecting) from now on. What an earlier process
// has left there goes on to judge; where that was of a version whose pods were on a bridge, it judges what is routed, too. So New is called before the network starts.
func New(ctx context.Context, c Config) (*Role, error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t, err := table.Open(ctx, table.Config{Networks: c.Networks, Log: log})
	if err != nil {
		return nil, err
	}
	if err := t.Adopt(); err != nil && !errdefs.IsFailedPrecondition(err) {
		log.ErrorContext(ctx, "network policies are not enforced until all of them are known", "error", err)
	}
	return newRole(t, c.NodeName, log), nil
}

func newRole(t rules, node string, log *slog.Logger) *Role {
	return &Role{
		log: log, table: t, wake: make(chan struct{}, 1), compiler: compile.New(), applied: true, told: map[types.UID]string{},
		facts: newFacts(node), enforced: true, changed: make(chan struct{}),
	}
}

// Remove takes the rules away that a process with this configuration has left.
func Remove(ctx context.Context, c Config) error {
	t, err := table.Open(ctx, table.Config{Networks: c.Networks, Log: c.Log})
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Remove()
}

// Close gives the way to the kernel back. The rules stay. It is called after Run has returned.
func (r *Role) Close() { r.table.Close() }

// Run enforces policies until ctx ends, which is no error. Then the rules stay as they are. kube may read policies, pods and namespaces of the cluster, and
// create events.
func (r *Role) Run(ctx context.Context, kube *rest.Config) error {
	config := rest.AddUserAgent(rest.CopyConfig(kube), userAgent)
	config.QPS = -1 // pods wait for it
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("network policies: client of %s: %w", config.Host, err)
	}
	events := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	r.client, r.recorder = client, newRecorder(events)
	return r.run(ctx)
}

func (r *Role) run(ctx context.Context) error {
	policies := r.watchPolicies(ctx)
	defer policies.stop()
	defer r.stopFeeds()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-again:
		}
		again = nil
		err := r.step(ctx)
		if err == nil {
			r.pause = 0
			continue
		}
		level := slog.LevelDebug // said once, and not with each try
		if r.pause == 0 {
			level = slog.LevelError
		}
		r.pause = min(max(2*r.pause, firstPause), longestPause)
		again = time.After(r.pause)
		r.log.Log(ctx, level, "network policies are not enforced as they are now", "error", err)
	}
}

// poke has the loop look.
func (r *Role) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// step makes the kernel's rules those of what is known now.
func (r *Role) step(ctx context.Context) error {
	r.mu.Lock()
	known, needed := r.facts.policiesKnown, r.facts.needed()
	r.mu.Unlock()
	switch {
	case !known:
		return nil
	case !needed:
		r.stopFeeds()
		if !r.applied {
			return nil
		}
		err := r.table.Remove()
		if errdefs.IsFailedPrecondition(err) {
			err = nil // a kernel that cannot do it has nothing of it
		}
		r.applied = err != nil
		r.publish(false, nil)
		return err
	case r.feeds == nil:
		r.startFeeds(ctx)
		return nil // they wake the loop when they know all
	}
	r.mu.Lock()
	view, whole := r.facts.view()
	r.mu.Unlock()
	if !whole {
		return nil
	}
	compiled := r.compile(&view)
	err := r.table.Apply(&compiled)
	r.applied = true
	switch {
	case err == nil:
		r.publish(true, nil)
		r.tell(compiled.Problems, nil)
		return nil
	case errdefs.IsFailedPrecondition(err):
		// Pods run: nothing else would be better for them. Whoever has written a policy is told.
		r.publish(false, err)
		r.tell(compiled.Problems, err)
	default:
		r.tell(compiled.Problems, err)
	}
	return err
}

// compile makes rules of what is new.
func (r *Role) compile(v *view) compile.Rules {
	if v.learn {
		r.policies = v.policies
		r.compiler.Learn(v.policies, v.namespaces)
	} else {
		r.compiler.Relabel(v.namespaces, v.without)
	}
	if v.all {
		return r.compiler.Compile(v.come)
	}
	return r.compiler.Update(v.come, v.gone)
}

// publish tells those who wait whether the rules of the last view are in the kernel, or none are.
func (r *Role) publish(enforced bool, unable error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.enforced, r.unable = enforced, unable; enforced {
		r.facts.settle()
	} else {
		r.facts.unsettle()
	}
	r.announce()
}

// announce wakes those who wait. It is called with the lock held.
func (r *Role) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Unable says why this node cannot enforce policies though there are some; nil: it does, or need not.
func (r *Role) Unable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unable
}

// errNotYet is that what holds for a pod is not known in time.
var errNotYet = errors.New("the network policies that hold for the pod are not enforced yet; it is tried again")

func policyKey(p *networkingv1.NetworkPolicy) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}
