package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/binarysize"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/internal/storage/snapshot"
)

// undoTime bounds how long what an attempt has left is removed before its error is told.
const undoTime = 30 * time.Second

// Source is a claim whose volume is copied.
type Source struct {
	Namespace, Claim string
	// InUse: where it can be copied file by file only, that is done while pods use it.
	InUse bool
}

func (s Source) String() string { return s.Namespace + "/" + s.Claim }

// Ask says whether snapshots and copies can be asked for now; else it is Unavailable. What people ask for waits for nothing.
func (p *Copies) Ask() error {
	if !p.knows.Load() {
		return fmt.Errorf("this node does not work with claims now: it is being started, or storage.provisioner is disabled; try again: %w", errdefs.ErrUnavailable)
	}
	return nil
}

// volumeOf is the claim and the record of its volume.
func (p *Copies) volumeOf(ctx context.Context, s Source) (*corev1.PersistentVolumeClaim, plan.Record, error) {
	var none plan.Record
	claim, err := p.client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, s.Claim, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, none, fmt.Errorf("there is no claim %s: see 'kubectl get pvc -A': %w", s, errdefs.ErrNotFound)
	case err != nil:
		return nil, none, err
	case claim.Spec.VolumeName == "":
		return nil, none, fmt.Errorf("the claim %s has no volume yet: it gets one with the first pod that uses it: %w", s, errdefs.ErrFailedPrecondition)
	}
	v, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, none, fmt.Errorf("volume %s of the claim %s: %w", claim.Spec.VolumeName, s, err)
	}
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return nil, none, fmt.Errorf("the claim %s is not bound to the volume %s that it names: %w", s, v.Name, errdefs.ErrFailedPrecondition)
	}
	r, known := p.store.Get(v.Name)
	switch {
	case !plan.Ours(v, p.config.NodeName) || v.Spec.Local.Path != p.store.Data(v.Name):
		return nil, none, fmt.Errorf("the volume %s of the claim %s is none that this node has made (%s): copy it by what it lies on: %w", v.Name, s, plan.Provisioner, errdefs.ErrFailedPrecondition)
	case !known || !p.store.Has(v.Name):
		return nil, none, fmt.Errorf("the volume %s of the claim %s is not in %s: is its disk mounted? %w", v.Name, s, p.store.Dir(), errdefs.ErrUnavailable)
	case r.Phase != plan.Ready:
		return nil, none, fmt.Errorf("the volume %s of the claim %s is being made or removed: %w", v.Name, s, errdefs.ErrUnavailable)
	}
	return claim, r, nil
}

// unused refuses a claim that pods use.
func (p *Copies) unused(ctx context.Context, s Source) error {
	if s.InUse {
		return nil
	}
	pods, err := p.client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	names := plan.Users(pods.Items)[s.String()]
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("the pod %s uses the claim %s, whose files can be copied one by one only: end what uses it first (kubectl scale, kubectl delete pod), or add --in-use: each file is of another "+
		"moment then, of which few databases can make anything: %w", strings.Join(names, ", "), s, errdefs.ErrFailedPrecondition)
}

// owed is how many bytes of the disk the images may come to need that snapshots share blocks with; but: not that volume.
func (p *base) owed(but string) (sum int64, err error) {
	of, err := p.snapshots.Of()
	if err != nil {
		return 0, err
	}
	for name := range of {
		r, ok := p.store.Get(name)
		if !ok || r.Hold != plan.File || name == but {
			continue
		}
		n, err := hold.Owed(p.of(r))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// SnapshotName is the name of a snapshot of a claim for which nobody has chosen one.
func SnapshotName(claim string, now time.Time) string {
	return claim[:min(len(claim), 180)] + now.UTC().Format("-20060102-150405")
}

// Snapshot makes a snapshot of a claim's volume, which goes by its name alone. name may be empty.
func (p *Copies) Snapshot(ctx context.Context, s Source, name string) (snapshot.Record, error) {
	if name == "" {
		name = SnapshotName(s.Claim, time.Now())
	}
	if err := snapshot.CheckName(name); err != nil {
		return snapshot.Record{}, err
	}
	r, err := p.take(ctx, s, snapshot.Record{Name: name})
	if errdefs.IsNotImplemented(err) {
		err = fmt.Errorf("the file system of %s cannot share blocks (btrfs and xfs can), so it has no snapshots: use 'monopod volume export' instead (%w)", p.store.Dir(), err)
	}
	if err == nil {
		p.log.InfoContext(ctx, "a snapshot is taken", "snapshot", r.Name, "claim", r.Claim.String(), "volume", r.Volume)
	}
	return r, err
}

// take makes a snapshot of which new says the name, and whether it is temporary.
func (p *Copies) take(ctx context.Context, s Source, r snapshot.Record) (snapshot.Record, error) {
	if err := p.Ask(); err != nil {
		return r, err
	}
	_, v, err := p.volumeOf(ctx, s)
	if err != nil {
		return r, err
	}
	unlock, err := p.turns.Lock(ctx, v.Name)
	if err != nil {
		return r, err
	}
	defer func() { unlock(); p.queue.Add(v.Name) }()
	claim, v, err := p.volumeOf(ctx, s) // it may have gone, or grown
	if err != nil {
		return r, err
	}
	if r.AtOnce = hold.AtOnce(v.Hold); !r.AtOnce {
		if err := p.holders.Shares(); err != nil { // nobody ends pods in vain
			return r, err
		}
		if err := p.unused(ctx, s); err != nil {
			return r, err
		}
	}
	of := p.of(v)
	if of.Owed, err = p.owed(v.Name); err != nil {
		return r, err
	}
	r.Volume, r.Claim, r.Class = v.Name, plan.Claimant{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, v.Class
	r.AccessModes, r.Requested, r.Size, r.Hold, r.Block = slices.Clone(claim.Spec.AccessModes), plan.Requested(claim), v.Size, v.Hold, v.Block
	r.Taken = time.Now().UTC().Truncate(time.Second)
	if err := failpoint.Around("storage/snapshot/record", func() error { return p.snapshots.Begin(r) }); err != nil {
		if !errdefs.IsAlreadyExists(err) {
			err = errors.Join(err, p.forgetSnapshot(ctx, r.Name))
		}
		return r, err
	}
	err = failpoint.Around("storage/snapshot/take", func() error { return p.holders.Take(ctx, of, p.still(r)) })
	if err == nil && !r.AtOnce {
		err = p.unused(ctx, s) // nor has anybody begun to
	}
	if err == nil {
		err = failpoint.Around("storage/snapshot/ready", func() error { return p.snapshots.Finish(r) })
	}
	if err != nil {
		return r, errors.Join(err, p.forgetSnapshot(ctx, r.Name))
	}
	r.Phase = snapshot.Ready
	return r, nil
}

// forgetSnapshot removes one that was not whole, or is not wanted any more, also for who does not wait.
func (p *Copies) forgetSnapshot(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := p.snapshots.Remove(ctx, name, hold.Drop)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// still is a snapshot as those see it who made it.
func (p *base) still(r snapshot.Record) hold.Snapshot {
	return hold.Snapshot{Dir: p.snapshots.Path(r.Name), Hold: r.Hold, Block: r.Block}
}

// RemoveSnapshot removes a snapshot, and nothing else.
func (p *Copies) RemoveSnapshot(ctx context.Context, name string) error {
	r, release, err := p.snapshots.Use(name)
	if err != nil {
		return err
	}
	release()
	if err := failpoint.Around("storage/snapshot/remove", func() error { return p.snapshots.Remove(ctx, name, hold.Drop) }); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "a snapshot is removed", "snapshot", name, "claim", r.Claim.String())
	return nil
}

// TakenTold is what is told of a snapshot.
type TakenTold struct {
	// Record is as far as it is known: of one that cannot be read, which Err says, the name alone.
	Record snapshot.Record
	Path   string
	// Used is how many bytes are in it, Own how many of these are free when it goes; nil: that was not found out, and Err says why.
	Used, Own *int64
	Err       error
}

// Snapshots tells of all snapshots, by name, as far as ctx lets it. It is safe for concurrent use.
func (p *Copies) Snapshots(ctx context.Context) ([]TakenTold, error) {
	taken, odd, err := p.snapshots.All()
	var all []TakenTold
	for _, r := range taken {
		if r.Temporary {
			continue
		}
		t := TakenTold{Record: r, Path: p.snapshots.Path(r.Name)}
		if r.Phase == snapshot.Ready {
			var used, own int64
			if used, own, t.Err = p.still(r).Usage(ctx); t.Err == nil {
				t.Used, t.Own = &used, &own
			}
		}
		all = append(all, t)
	}
	for name, err := range odd {
		all = append(all, TakenTold{Record: snapshot.Record{Name: name}, Path: p.snapshots.Path(name), Err: err})
	}
	slices.SortFunc(all, func(a, b TakenTold) int { return strings.Compare(a.Record.Name, b.Record.Name) })
	return all, err
}

// Troubles are what is wrong with snapshots.
func (p *base) Troubles(context.Context) (all []string) {
	_, odd, err := p.snapshots.All()
	if err != nil {
		all = append(all, fmt.Sprintf("the snapshots of volumes cannot be read: %v", err))
	}
	for _, name := range slices.Sorted(maps.Keys(odd)) {
		all = append(all, fmt.Sprintf("%s is left as it is: %v", p.snapshots.Path(name), odd[name]))
	}
	owed, err := p.owed("")
	if err != nil || owed == 0 {
		return all
	}
	if free, _, err := p.holders.Room(); err == nil && free < owed {
		all = append(all, fmt.Sprintf("images of claims may need %s more, since snapshots have blocks of them, and %s has %s free: remove snapshots (monopod volume snapshot ls), or make room",
			binarysize.Text(owed), p.store.Dir(), binarysize.Text(free)))
	}
	return all
}

// sweep removes what a kill has left of snapshots, and has pods write again that wait for one.
func (p *base) sweep(ctx context.Context) error {
	return p.snapshots.Sweep(ctx, func(r snapshot.Record) error {
		if r.Phase == snapshot.Taking {
			p.log.WarnContext(ctx, "a snapshot was not taken to its end; it is removed", "snapshot", r.Name, "claim", r.Claim.String())
		}
		return p.thaw(r)
	}, hold.Drop)
}

// thaw has pods write to a volume again of which a snapshot was being taken.
func (p *base) thaw(r snapshot.Record) error {
	if r.Phase != snapshot.Taking || r.Hold != plan.File || r.Block {
		return nil
	}
	return hold.Thaw(p.of(plan.Record{Name: r.Volume}))
}

// thawAll is thaw for all that there are.
func (p *base) thawAll() error {
	all, _, err := p.snapshots.All()
	errs := []error{err}
	for _, r := range all {
		errs = append(errs, p.thaw(r))
	}
	return errors.Join(errs...)
}

// temporaryName is the name of a snapshot that nobody can ask for.
func temporaryName() string { return ".export-" + rand.Text()[:8] }
