package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"
)

// Manager is the field manager of what is applied.
const Manager = "monopod-manifests"

// The first time until what could not be done is tried again, which doubles up to the longest.
const (
	firstDelay   = time.Second
	longestDelay = time.Minute
)

// Config is what a Keeper needs.
type Config struct {
	Dir string
	// Kube reaches the API server, with the right to do all that the files want.
	Kube *rest.Config
	// NodeName is the node whose events tell what could not be done.
	NodeName string
	Log      *slog.Logger
}

// Keeper keeps in the API what a directory holds.
type Keeper struct {
	config  Config
	log     *slog.Logger
	client  kubernetes.Interface
	objects dynamic.Interface
	kinds   meta.ResettableRESTMapper
	// applied is what was applied by this process, by a sum of what the file said.
	applied map[Key][32]byte
	// told is what could not be done the last time.
	told string
}

// New returns a Keeper that does nothing until it is run.
func New(config Config) (*Keeper, error) {
	k := &Keeper{config: config, log: config.Log, applied: map[Key][32]byte{}}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	kube := rest.AddUserAgent(rest.CopyConfig(config.Kube), Manager)
	kube.QPS = -1
	var err error
	if k.client, err = kubernetes.NewForConfig(kube); err != nil {
		return nil, fmt.Errorf("manifests: client of %s: %w", kube.Host, err)
	}
	if k.objects, err = dynamic.NewForConfig(kube); err != nil {
		return nil, fmt.Errorf("manifests: client of %s: %w", kube.Host, err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("manifests: client of %s: %w", kube.Host, err)
	}
	k.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known))
	return k, nil
}

// Run keeps the directory's objects in the API until ctx ends, which is no error.
func (k *Keeper) Run(ctx context.Context) error {
	events := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.client.CoreV1().Events("")})
	recorder := events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: Manager, Host: k.config.NodeName})

	changes, err := newWatch(ctx, k.config.Dir)
	if err != nil {
		return err
	}
	defer func() { <-changes.ended }() // ctx has ended then
	for delay := firstDelay; ; {
		// Watched before it is read: what changes meanwhile is read again.
		err := errors.Join(changes.add(), k.Sync(ctx))
		if ctx.Err() != nil {
			return nil
		}
		k.tell(recorder, err)
		var again <-chan time.Time
		if err != nil {
			again, delay = time.After(delay), min(2*delay, longestDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changes.changed:
			delay = firstDelay
		}
	}
}

// tell says what could not be done, once until it is something else.
func (k *Keeper) tell(events record.EventRecorder, err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now == k.told {
		return
	}
	k.told = now
	node := &corev1.ObjectReference{Kind: "Node", Name: k.config.NodeName, UID: types.UID(k.config.NodeName)}
	if err == nil {
		k.log.Info("all manifests are applied again", "dir", k.config.Dir)
		events.Eventf(node, corev1.EventTypeNormal, "ManifestsApplied", "What lies in %s is applied", k.config.Dir)
		return
	}
	k.log.Error("manifests are not all applied, trying again", "dir", k.config.Dir, "error", strings.ReplaceAll(now, "\n", "; "))
	for _, line := range strings.Split(now, "\n") {
		events.Event(node, corev1.EventTypeWarning, "ManifestFailed", line)
	}
}

// Sync makes the API have what the directory holds now. It does all that can be done; the error says what could not.
func (k *Keeper) Sync(ctx context.Context) error {
	reading, err := Read(k.config.Dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not there; what was applied from it stays", k.config.Dir)
		}
		return fmt.Errorf("%w; what was applied stays", err)
	}
	var errs []error
	for file, fault := range reading.Faults {
		errs = append(errs, fmt.Errorf("%s: %w", file, fault))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	had, version, err := k.inventory(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	plan := Decide(reading, had)
	if version, err = k.keep(ctx, plan.Before, had, version); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, d := range plan.Apply {
		if err := k.apply(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", d.File, keyOf(d.Object), err))
		}
	}
	for _, gone := range plan.Prune {
		if err := k.prune(ctx, gone, had[gone]); err != nil {
			errs = append(errs, fmt.Errorf("%s, whose file %s is gone: %w", gone, had[gone].File, err))
			plan.After[gone] = had[gone]
		}
	}
	if _, err := k.keep(ctx, plan.After, plan.Before, version); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// store is where the inventory is kept.
func (k *Keeper) store() typedcorev1.ConfigMapInterface {
	return k.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
}
