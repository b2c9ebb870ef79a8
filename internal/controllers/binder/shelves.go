package binder

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/binder/errand"
	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/pods"
)

// shelves are the claims, volumes and classes as the watches show them.
type shelves struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes cache.Indexer
	classes storagelisters.StorageClassLister
}

func (s shelves) Claim(name types.NamespacedName) *corev1.PersistentVolumeClaim {
	c, err := s.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	return c
}

func (s shelves) Volume(name string) *corev1.PersistentVolume {
	obj, found, err := s.volumes.GetByKey(name)
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.PersistentVolume)
}

func (s shelves) Class(name string) *storagev1.StorageClass {
	c, err := s.classes.Get(name)
	if err != nil {
		return nil
	}
	return c
}

// list are the volumes with a key in the index of those whom they are for.
func (s shelves) list(key string) []*corev1.PersistentVolume {
	found, err := s.volumes.ByIndex(storageindex.ByTaker, key)
	if err != nil {
		return nil
	}
	all := make([]*corev1.PersistentVolume, len(found))
	for i := range found {
		all[i] = found[i].(*corev1.PersistentVolume)
	}
	return all
}

// prospect is what a decision goes by: the shelves as they will be when all errands have come to their ends, and the pods that have their places. The book is
// being looked at.
type prospect struct {
	shelves
	b *Binder
}

func (p *prospect) used(claim types.NamespacedName) bool { return p.b.book.claims[claim] > 0 }

func (p *prospect) Claim(name types.NamespacedName) *corev1.PersistentVolumeClaim {
	c := p.shelves.Claim(name)
	if c == nil || c.Spec.VolumeName != "" {
		return c
	}
	e := p.b.errands.Find(errand.OfClaim(c), func(e *errand.Errand) bool { return e.WillMake(c) })
	if e == nil || c.Annotations[helpers.AnnSelectedNode] == e.Node {
		return c
	}
	c = c.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, helpers.AnnSelectedNode, e.Node)
	return c
}

// offers has volumes that an errand is about to give to a claim for that one alone.
func (p *prospect) offers(class string, claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume {
	offers := p.list(storageindex.FreeOf(class))
	n := 0
	for _, v := range offers {
		if e := p.b.errands.Find(errand.OfVolume(v.Name), func(*errand.Errand) bool { return true }); e != nil {
			given, err := e.Given(v, claim.UID)
			if err != nil || given == nil {
				continue
			}
			v = given
		}
		offers[n] = v
		n++
	}
	offers = offers[:n]
	for _, v := range p.list(storageindex.HeldFor(claim.Namespace, claim.Name)) {
		if helpers.GetPersistentVolumeClass(v) == class {
			offers = append(offers, v)
		}
	}
	return offers
}

// goOn has the errands of pods looked at.
func (b *Binder) goOn(uids []types.UID) {
	for _, uid := range uids {
		b.toDo.Add(uid)
	}
}

// claimChanged goes on with errands that wait for a claim, and looks again at the pods that have it.
func (b *Binder) claimChanged(old, claim *corev1.PersistentVolumeClaim) {
	b.goOn(b.errands.About(errand.OfClaim(claim)))
	if old != nil && old.UID == claim.UID && old.Status.Phase == claim.Status.Phase && (old.DeletionTimestamp == nil) == (claim.DeletionTimestamp == nil) &&
		maps.Equal(old.Annotations, claim.Annotations) && apiequality.Semantic.DeepEqual(old.Spec, claim.Spec) && errand.Refusal(old) == errand.Refusal(claim) &&
		apiequality.Semantic.DeepEqual(old.OwnerReferences, claim.OwnerReferences) {
		return
	}
	b.retryClaim(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
}

// volumeChanged does the same for those that a volume is for.
func (b *Binder) volumeChanged(old, v *corev1.PersistentVolume) {
	b.volumeGone(v)
	if old != nil && old.Status.Phase == v.Status.Phase && maps.Equal(old.Labels, v.Labels) && apiequality.Semantic.DeepEqual(old.Spec, v.Spec) {
		return
	}
	if c := v.Spec.ClaimRef; c != nil {
		b.retryClaim(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		return
	}
	b.retryClass(helpers.GetPersistentVolumeClass(v))
}

// volumeGone goes on with errands that have to do with a volume. That it is gone helps nobody else to a node.
func (b *Binder) volumeGone(v *corev1.PersistentVolume) {
	b.goOn(b.errands.About(errand.OfVolume(v.Name)))
	if c := v.Spec.ClaimRef; c != nil {
		b.goOn(b.errands.About(errand.Object{Namespace: c.Namespace, Name: c.Name}))
	}
}

func (b *Binder) classChanged(old, class *storagev1.StorageClass) {
	if old != nil && old.UID == class.UID && apiequality.Semantic.DeepEqual(old.AllowedTopologies, class.AllowedTopologies) {
		return // nothing else of it can change that matters here
	}
	b.retryClass(class.Name)
}

// classGone goes on with errands that wait for a volume of a class, which nobody makes any more, and has those told who wait for a node.
func (b *Binder) classGone(class *storagev1.StorageClass) {
	b.goOn(b.errands.Some(func(e *errand.Errand) bool {
		return slices.ContainsFunc(e.Makes, func(c *corev1.PersistentVolumeClaim) bool {
			return helpers.GetPersistentVolumeClaimClass(c) == class.Name
		})
	}))
	b.retryClass(class.Name)
}

// retryClass looks again at the pods without a node that have a claim of a class, and at those on nodes whose claims get no volumes.
func (b *Binder) retryClass(class string) {
	b.retryStranded("")
	b.retry(b.line.claimingOnes(), func(w *waiter) bool {
		for _, name := range pods.Claims(w.pod) {
			if c := b.shelves.Claim(name.NamespacedName); c != nil && helpers.GetPersistentVolumeClaimClass(c) == class {
				return true
			}
		}
		return false
	})
}

// handlers are those of an informer's objects; gone is told of what there was.
func handlers[T any](changed func(old, now T), gone func(T)) cache.ResourceEventHandlerFuncs {
	var none T
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(none, obj.(T)) },
		UpdateFunc: func(old, obj any) { changed(old.(T), obj.(T)) },
		DeleteFunc: func(obj any) {
			if object, ok := informer.Last[T](obj); ok {
				gone(object)
			}
		},
	}
}
