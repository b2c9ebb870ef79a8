package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // leader_election_master_status, as upstream's
)

// LeaseName is the Lease in kube-system that the controllers wait for, all of a process together.
const LeaseName = "monopod-controllers"

// DefaultLease is how long a Lease counts that is not renewed, as upstream's.
const DefaultLease = 15 * time.Second

// Election has the controllers of several processes act one after another: those of whoever has the Lease. The others wait, and know nothing of the API meanwhile
// but the Lease.
//
//	waits --- the Lease is free, or was not renewed for its time ---> acts
//	acts  --- it could not be renewed for two thirds of its time, or is another's ---> waits
//	acts  --- its context ends: the controllers end, then the Lease is let go ---> ends
//
// From the last renewal on, whoever acts writes nothing after two thirds of the Lease's time, however long the process was stopped in between.
type Election struct {
	// Identity names the process. One that stands in the place of another, which certainly has ended, has the same, and waits for nothing.
	Identity string
	// Lease is how long the Lease counts from its last renewal on, at least 1 s and in whole seconds; 0: DefaultLease.
	Lease time.Duration
}

// election is an Election at work.
type election struct {
	Election
	leases typedcoordinationv1.LeaseInterface
	lock   resourcelock.Interface
	fence  fence
	log    *slog.Logger
	// tried is the version of the free Lease for which the last round was begun.
	tried string
}

// newElection makes an election, which tells its events as upstream's do until stop is called. Its client is not held back by the fence.
func (c *Controllers) newElection(ctx context.Context) (e *election, stop func(), err error) {
	e = &election{Election: *c.config.Election, log: c.log}
	if e.Lease == 0 {
		e.Lease = DefaultLease
	}
	config := rest.AddUserAgent(rest.CopyConfig(c.config.Kube), userAgent)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	e.leases = client.CoordinationV1().Leases(metav1.NamespaceSystem)
	events := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceSystem)})
	e.fence.time = e.renewal()
	e.lock = &renewed{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: LeaseName}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{
			Identity: e.Identity, EventRecorder: events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: userAgent}),
		},
	}, fence: &e.fence, time: e.renewal() / 2}
	return e, events.Shutdown, nil
}

// renewal is how long a Lease is tried to be renewed, and for how long whoever has it acts.
func (e *election) renewal() time.Duration { return e.Lease * 2 / 3 }

// electedRun runs the controllers again and again, whenever they are elected, until ctx ends.
func (c *Controllers) electedRun(ctx context.Context) error {
	e, stop, err := c.newElection(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for ctx.Err() == nil {
		if err := c.round(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// round is one election, and what the controllers do if they are elected.
func (c *Controllers) round(ctx context.Context, e *election) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName, Lock: e.lock, LeaseDuration: e.Lease, RenewDeadline: e.renewal(), RetryPeriod: e.Lease * 2 / 15, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { elected <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				if who != e.Identity {
					e.log.Info("the controllers of another process act; these stand by", "lease", LeaseName, "holder", who)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("controllers: election: %w", err)
	}
	watching, unwatch := context.WithCancel(electing)
	defer unwatch()
	free := make(chan string, 1)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() { e.watch(watching, free) })
	tasks.Go(func() {
		defer close(over)
		elector.Run(electing)
	})
	defer func() { stop(); tasks.Wait() }() // if the Lease is held, it is let go here: nothing of the controllers is at work any more
	select {
	case lead := <-elected:
		unwatch()
		acting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(lead, cancel)()
		e.log.Info("these controllers act", "lease", LeaseName)
		if err = c.act(acting, &e.fence); err == nil && ctx.Err() == nil {
			e.log.Warn("the lease could not be renewed: these controllers act no more", "lease", LeaseName)
		}
		return err
	case e.tried = <-free: // the next round asks at once; this one would within some seconds
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// watch tells, once, that the Lease was let go, by its version.
func (e *election) watch(ctx context.Context, free chan<- string) {
	pause := time.NewTicker(e.Lease * 2 / 15)
	defer pause.Stop()
	for ctx.Err() == nil {
		w, err := e.leases.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", LeaseName).String()})
		if err == nil {
			version := e.free(w)
			w.Stop()
			if version != "" {
				free <- version
				return
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// free returns at the first event that says that nobody has the Lease, with its version, or when the watch ends.
func (e *election) free(w watch.Interface) string {
	for event := range w.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok || lease.ResourceVersion == e.tried {
			continue
		}
		if event.Type == watch.Deleted || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return lease.ResourceVersion
		}
	}
	return ""
}

// renewed is a lock that tells a fence when it was renewed, by the time before it was asked for. A request that is not answered is given up in time for another.
//
// It lets nobody's Lease go but its own. leaderelection lets go what it had when it looked last: a process that was stopped in the midst of a renewal looks at
// nothing more when it goes on, and frees the Lease of whoever was elected meanwhile.
type renewed struct {
	resourcelock.Interface
	fence *fence
	time  time.Duration
	// holder is who has the Lease, as far as was read or written last. The elector alone asks, one thing after the other.
	holder string
}

// Get implements resourcelock.Interface.
func (r *renewed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.time)
	defer cancel()
	record, raw, err := r.Interface.Get(ctx)
	if err == nil {
		r.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (r *renewed) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, record, r.Interface.Create)
}

// Update implements resourcelock.Interface.
func (r *renewed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, record, r.Interface.Update)
}

func (r *renewed) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.time)
	defer cancel()
	begin := time.Now()
	if record.HolderIdentity == "" {
		r.fence.renewed(time.Time{})
		if r.holder != r.Identity() {
			return nil
		}
	}
	err := write(ctx, record)
	if err != nil {
		return err
	}
	if r.holder = record.HolderIdentity; r.holder != "" {
		r.fence.renewed(begin)
	}
	return nil
}

// errNotElected is why a request was not sent.
var errNotElected = errors.New("these controllers are not elected any more: nothing is written")

// fence lets requests that write pass for some time after it was opened. So a process that was stopped, and goes on when others have been elected long since,
// finishes nothing of what it was at.
type fence struct {
	time time.Duration

	mu sync.Mutex
	at time.Time
}

// renewed notes that the Lease was renewed at some time; the zero Time: it is let go.
func (f *fence) renewed(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
}

// open says whether what writes passes now; a nil fence is always open.
func (f *fence) open() bool { return f == nil || f.passes(time.Now()) }

// passes asks both clocks: the monotonic one stands while the machine sleeps, the other one is set by people.
func (f *fence) passes(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.at.IsZero() && now.Sub(f.at) < f.time && now.Round(0).Sub(f.at.Round(0)) < f.time
}

// wrap is a transport of client-go.
func (f *fence) wrap(rt http.RoundTripper) http.RoundTripper { return fenced{rt, f} }

type fenced struct {
	http.RoundTripper
	fence *fence
}

// RoundTrip implements http.RoundTripper.
func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !f.fence.open() {
		return nil, errNotElected
	}
	return f.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport.
func (f fenced) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }
