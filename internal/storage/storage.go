package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
	records "monopod.dev/monopod/internal/storage/record"
	"monopod.dev/monopod/internal/storage/snapshot"
)

// workers is how many volumes are worked on at a time. Most of the work is to wait for the disk.
const workers = 8

// byUID is an index of claims.
const byUID = "uid"

// Config is what a Provisioner needs.
type Config struct {
	// Dir is the directory of the volumes. It is made with the first of them.
	Dir string
	// NodeName is the name of the node, which its label kubernetes.io/hostname has as well.
	NodeName string
	// Alone: nobody else may have the directory until Close, and no other user write to it.
	Alone bool
	// Log; nil: none.
	Log *slog.Logger
}

// base is what all work with that have to do with volumes: what is on the disk, and what the API has.
type base struct {
	config  Config
	log     *slog.Logger
	store   *records.Store
	holders *hold.Holders
	queue   *queue.Queue[string] // names of volumes
	// turns: one at a time does something to a volume, by its name.
	turns     keyed.Lock[string]
	snapshots *snapshot.Store

	// What Run works with.
	client  kubernetes.Interface
	events  record.EventRecorder
	classes cache.Store
	claims  cache.Indexer
	volumes cache.Store
	knows   atomic.Bool // what they hold is what the API has
}

// Provisioner makes volumes.
type Provisioner struct {
	*base
	keeper *classKeeper

	mu sync.Mutex
	// told is what was told last of a volume, by its name.
	told map[string]telling
}

// Copies makes snapshots of volumes, and new claims with what others have, as people ask for it.
type Copies struct {
	*base
	// settle does what is to be done about a volume, for who has its turn.
	settle func(ctx context.Context, name string) error
}

// Copies is what makes copies of this provisioner's volumes.
func (p *Provisioner) Copies() *Copies { return &Copies{base: p.base, settle: p.settle} }

// New reads what is known of the volumes in the directory. It changes none of them.
func New(config Config) (*Provisioner, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	store, err := records.Open(config.Dir, config.NodeName, config.Alone, config.Log)
	if err != nil {
		return nil, err
	}
	b := &base{
		config: config, log: config.Log, store: store, holders: hold.New(config.Dir), queue: queue.New[string](),
		snapshots: snapshot.New(config.Dir, config.NodeName, store.Bin()),
	}
	p := &Provisioner{base: b, keeper: newClassKeeper(b), told: map[string]telling{}}
	for name, err := range store.Odd() {
		p.log.Error("a directory among the volumes is left as it is: its record cannot be read, or is another node's", "directory", store.Path(name), "error", err)
	}
	return p, nil
}

// Close lets others have the directory. Nothing else runs any more.
func (p *Provisioner) Close() { p.store.Close() }

// Attach has the volumes there that the machine's start has taken away, and removes the snapshots that a kill has left half taken. It is called before pods are started. What
// cannot be had is told of.
func (p *Provisioner) Attach(ctx context.Context) {
	if err := p.sweep(ctx); err != nil {
		p.log.ErrorContext(ctx, "snapshots that are not whole, or not wanted any more, stay on the disk until the next start", "error", err)
	}
	for _, r := range p.store.All() {
		if r.Phase != plan.Ready {
			continue
		}
		if err := p.attach(ctx, r); err != nil {
			p.log.ErrorContext(ctx, "a volume is not there; it is not made anew, and pods that have it wait", "volume", r.Name, "claim", r.Claim.String(), "directory", p.store.Path(r.Name), "error", err)
		}
	}
}

func (p *base) attach(ctx context.Context, r plan.Record) error {
	h, err := p.holders.Of(r.Hold)
	if err != nil {
		return err
	}
	return h.Attach(ctx, p.of(r))
}

// Detach takes off the machine what the volumes have there beside their files. No pod has them any more, and nothing else runs.
func (p *Provisioner) Detach(ctx context.Context) error {
	errs := []error{p.thawAll()}
	for _, r := range p.store.All() {
		h, err := p.holders.Of(r.Hold)
		if err == nil {
			err = h.Detach(ctx, p.of(r))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// of is a volume as those see it who hold its size.
func (p *base) of(r plan.Record) hold.Volume {
	return hold.Volume{Dir: p.store.Path(r.Name), Data: p.store.Data(r.Name), Size: r.Size, Block: r.Block, QuotaID: r.QuotaID}
}

// Run makes and removes volumes until ctx ends, which is no error. It is called once. kube reaches the API server.
func (p *Provisioner) Run(ctx context.Context, kube *rest.Config) error {
	kube = rest.AddUserAgent(rest.CopyConfig(kube), "monopod-storage")
	kube.QPS = -1
	kube.ContentType, kube.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var err error
	if p.client, err = kubernetes.NewForConfig(kube); err != nil {
		return fmt.Errorf("storage: client of %s: %w", kube.Host, err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.client.CoreV1().Events("")})
	p.events = broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: plan.Provisioner, Host: p.config.NodeName})

	shared := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithTransform(slim))
	known, err := p.watch(shared)
	if err != nil {
		return err
	}
	defer shared.Shutdown() // their context has ended then
	shared.StartWithContext(ctx)

	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := p.store.Run(ctx); err != nil && ctx.Err() == nil {
			p.log.ErrorContext(ctx, "what is removed stays on the disk", "error", err)
		}
	})
	all.Go(func() { p.keeper.keepClass(ctx) })
	cache.WaitFor(ctx, "", known...)
	p.knows.Store(ctx.Err() == nil)
	for _, r := range p.store.All() {
		p.queue.Add(r.Name)
	}
	all.Go(func() { p.keeper.tellAll(ctx) })
	p.queue.Run(ctx, workers, p.sync, func(name string, err error) {
		if !apierrors.IsConflict(err) && !errors.Is(err, errLate) && !errors.Is(err, errAbsent) {
			p.log.WarnContext(ctx, "a volume is not as it should be; trying again", "volume", name, "error", err)
		}
	})
	return nil
}

// slim drops what is not read here, and what may be most of an object.
func slim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// watch has what changes put volumes in line.
func (p *Provisioner) watch(shared informers.SharedInformerFactory) (known []cache.DoneChecker, err error) {
	classes, claims, volumes := shared.Storage().V1().StorageClasses().Informer(), shared.Core().V1().PersistentVolumeClaims().Informer(), shared.Core().V1().PersistentVolumes().Informer()
	err = claims.AddIndexers(cache.Indexers{byUID: func(obj any) ([]string, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		return []string{string(m.GetUID())}, nil
	}})
	if err != nil {
		return nil, err
	}
	p.classes, p.claims, p.volumes = classes.GetStore(), claims.GetIndexer(), volumes.GetStore()
	for _, one := range []struct {
		informer cache.SharedIndexInformer
		changed  func(any)
	}{{classes, p.classChanged}, {claims, p.claimChanged}, {volumes, p.volumeChanged}} {
		r, err := one.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: one.changed, UpdateFunc: func(old, obj any) { one.changed(old); one.changed(obj) }, DeleteFunc: one.changed,
		})
		if err != nil {
			return nil, err
		}
		known = append(known, r.HasSyncedChecker())
	}
	return known, nil
}

func (p *Provisioner) classChanged(obj any) {
	if c, ok := informer.Last[*storagev1.StorageClass](obj); ok && c.Provisioner == plan.Provisioner {
		p.keeper.unsaid.Add(c.Name)
	}
	for _, obj := range p.claims.List() {
		if c, ok := obj.(*corev1.PersistentVolumeClaim); ok && c.Spec.VolumeName == "" {
			p.claimChanged(c)
		}
	}
}

func (p *Provisioner) claimChanged(obj any) {
	c, ok := informer.Last[*corev1.PersistentVolumeClaim](obj)
	if !ok {
		return
	}
	if name := plan.VolumeName(c); c.Spec.VolumeName != name {
		p.queue.Add(name)
	}
	if c.Spec.VolumeName != "" {
		p.queue.Add(c.Spec.VolumeName)
	}
}

func (p *Provisioner) volumeChanged(obj any) {
	if v, ok := informer.Last[*corev1.PersistentVolume](obj); ok {
		p.queue.Add(v.Name)
	}
}

// reader finds the objects that a decision is made of.
type reader interface {
	// volume and claim return nil for what is not there.
	volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	claim(ctx context.Context, c plan.Claimant) (*corev1.PersistentVolumeClaim, error)
}

// cached reads what was seen last.
type cached struct{ p *Provisioner }

func (r cached) volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return from[*corev1.PersistentVolume](r.p.volumes, name)
}

func (r cached) claim(_ context.Context, c plan.Claimant) (*corev1.PersistentVolumeClaim, error) {
	return from[*corev1.PersistentVolumeClaim](r.p.claims, c.String())
}

// stored reads what the API server has.
type stored struct{ client kubernetes.Interface }

func (r stored) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	v, err := r.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return v, err
}

func (r stored) claim(ctx context.Context, c plan.Claimant) (*corev1.PersistentVolumeClaim, error) {
	claim, err := r.client.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

func from[T any](store cache.Store, key string) (none T, err error) {
	obj, exists, err := store.GetByKey(key)
	if !exists || err != nil {
		return none, err
	}
	found, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("%s is a %T", key, obj)
	}
	return found, nil
}

// see is what a decision about a volume is made of.
func (p *Provisioner) see(ctx context.Context, read reader, name string) (s plan.Seen, err error) {
	s.Node = p.config.NodeName
	if r, ok := p.store.Get(name); ok {
		s.Record, s.Missing = &r, !p.store.Has(name)
	}
	if s.Volume, err = read.volume(ctx, name); err != nil {
		return s, err
	}
	var whose plan.Claimant
	switch uid := strings.TrimPrefix(name, "pvc-"); {
	case s.Volume != nil && s.Volume.Spec.ClaimRef != nil:
		ref := s.Volume.Spec.ClaimRef
		whose = plan.Claimant{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	case s.Volume != nil:
		return s, nil
	case s.Record != nil:
		whose = s.Record.Claim
	default:
		found, err := p.claims.ByIndex(byUID, uid)
		if err != nil || len(found) == 0 {
			return s, err
		}
		c, ok := found[0].(*corev1.PersistentVolumeClaim)
		if !ok {
			return s, nil
		}
		whose = plan.Claimant{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	}
	if s.Claim, err = read.claim(ctx, whose); err != nil || s.Claim == nil {
		return s, err
	}
	if s.Claim.UID != whose.UID && !(whose.UID == "" && s.Claim.Spec.VolumeName == name) {
		s.Claim = nil // one that came later
		return s, nil
	}
	if s.Class, err = from[*storagev1.StorageClass](p.classes, helpers.GetPersistentVolumeClaimClass(s.Claim)); err != nil {
		return s, err
	}
	s.NodeGone, err = p.nodeGone(ctx, s)
	return s, err
}

// nodeGone says whether a volume is wanted of this provisioner on a node that is not there.
func (p *Provisioner) nodeGone(ctx context.Context, s plan.Seen) (bool, error) {
	selected := s.Claim.Annotations[helpers.AnnSelectedNode]
	if s.Volume != nil || s.Claim.Spec.VolumeName != "" || selected == "" || selected == s.Node || s.Class == nil || s.Class.Provisioner != plan.Provisioner {
		return false, nil
	}
	_, err := p.client.CoreV1().Nodes().Get(ctx, selected, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// errLate: what is seen of the objects is late, and what it asks for must not be done.
var errLate = errors.New("what was seen of it is late")

// errAbsent: its disk may not be mounted yet, which was told.
var errAbsent = errors.New("its directory is not there")

// sync does what is to be done about a volume.
func (p *Provisioner) sync(ctx context.Context, name string) error {
	unlock, err := p.turns.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return p.settle(ctx, name)
}

// settle is sync for who has the volume's turn.
func (p *Provisioner) settle(ctx context.Context, name string) error {
	seen, err := p.see(ctx, cached{p}, name)
	if err != nil {
		return err
	}
	d := plan.Decide(seen)
	if d.Verb == plan.Undo || d.Verb == plan.Remove || d.Verb == plan.Abandon {
		// What is seen may be late, and what is removed does not come back.
		if seen, err = p.see(ctx, stored{p.client}, name); err != nil {
			return err
		}
		if plan.Decide(seen).Verb != d.Verb {
			return errLate
		}
	}
	if seen.Claim != nil && seen.Claim.Spec.VolumeName != "" { // whoever has made it
		if err := p.succeeded(ctx, seen.Claim); err != nil {
			return err
		}
	}
	return p.act(ctx, name, seen, d)
}
