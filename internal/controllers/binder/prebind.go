package binder

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/volumebinding"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/pods"
)

// errandWorkers is how many errands are worked on at a time: what takes its time is to write the objects.
const errandWorkers = 4

// start begins an errand: the pod has its place from now on, and is bound when its claims are. What was decided may be late: the pod may have gone, and nobody tells
// of that again; the errand's first step finds out.
func (b *Binder) start(pod *corev1.Pod, node string, p plan) {
	e := newErrand(pod, node, p, time.Now())
	if !e.placed() {
		b.book.assume(pod, node)
	}
	b.errands.add(e)
	b.toDo.Add(pod.UID)
}

// errand goes on with one.
func (b *Binder) errand(ctx context.Context, uid types.UID) error {
	e := b.errands.get(uid)
	if e == nil {
		return nil
	}
	if !b.stands(e) {
		b.cancel(e.pod)
		return nil
	}
	node, err := b.nodes.Get(e.node)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	next := e.next(b.shelves, node, time.Now())
	switch {
	case next.failed != "":
		return b.giveUp(ctx, e, next)
	case next.done && e.placed():
		b.errands.drop(uid)
		b.queue.Add(key(e.pod)) // it may have claims that were not there when the errand began
		return nil
	case next.done:
		if err := b.bind(ctx, e.pod, e.node); err != nil {
			b.log.Warn("cannot bind pod, trying again", "namespace", e.pod.Namespace, "pod", e.pod.Name, "error", err)
			b.queue.Add(key(e.pod))
		}
		b.errands.drop(uid)
		return nil
	}
	for _, g := range next.gives {
		if err := b.give(ctx, e, g); err != nil {
			return e.trouble(fmt.Errorf("give volume %s to claim %s: %w", g.volume.Name, g.claim.Name, err))
		}
	}
	for _, claim := range next.makes {
		if err := b.mark(ctx, e, claim); err != nil {
			return e.trouble(fmt.Errorf("write into claim %s that its pod gets node %s: %w", claim.Name, e.node, err))
		}
	}
	b.toDo.AddAfter(uid, time.Until(e.until))
	return nil
}

// give has a volume point at a claim. The controller of volumes does the rest of the binding.
func (b *Binder) give(ctx context.Context, e *errand, g give) error {
	if err := failpoint.Hit("controllers/binder/give"); err != nil {
		return err
	}
	v, _, err := helpers.GetBindVolumeToClaim(g.volume, g.claim)
	if err == nil {
		v, err = b.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	}
	if err == nil {
		e.wrote(ofVolume(v.Name), v.ResourceVersion)
	}
	return err
}

// mark writes into a claim for which node its volume is made, and by whom: the controller of volumes would write the latter next, and the provisioner would wait for it.
func (b *Binder) mark(ctx context.Context, e *errand, claim *corev1.PersistentVolumeClaim) error {
	if err := failpoint.Hit("controllers/binder/mark"); err != nil {
		return err
	}
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, helpers.AnnSelectedNode, e.node)
	if class := b.shelves.class(helpers.GetPersistentVolumeClaimClass(claim)); class != nil && volumebinding.Outside(class.Provisioner) {
		claim, _ = volumebinding.Announced(claim, class.Provisioner)
	}
	claim, err := b.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err == nil {
		e.wrote(ofClaim(claim), claim.ResourceVersion)
	}
	return err
}

// giveUp ends an errand that comes to nothing: the pod is told, unless things have only changed under way, loses its place, and is looked at again.
func (b *Binder) giveUp(ctx context.Context, e *errand, why step) error {
	pod := e.pod
	if obj, found, err := b.pods.GetStore().GetByKey(key(pod).String()); err == nil && found && obj.(*corev1.Pod).UID == pod.UID {
		pod = obj.(*corev1.Pod)
	}
	switch {
	case why.quiet:
	case e.placed():
		b.notBound(e, why.failed)
	case isOurs(pod):
		told := `running PreBind plugin "VolumeBinding": binding volumes: ` + why.failed
		st := waiting(pod, told, false, time.Now())
		c := pods.Condition(&st, corev1.PodScheduled)
		c.Reason = corev1.PodReasonSchedulerError
		if !apiequality.Semantic.DeepEqual(st, pod.Status) {
			if err := b.patchStatus(ctx, pod, "", st); err != nil && !owned.Gone(ctx, b.client, pod, err) {
				return fmt.Errorf("write that its volumes are not bound (%s): %w", why.failed, err)
			}
		}
		b.log.Info("the volumes of a pod are not bound, trying again", "namespace", pod.Namespace, "pod", pod.Name, "node", e.node, "why", why.failed)
		b.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", told)
	}
	delay := b.errands.giveUp(e, time.Now())
	if !e.placed() {
		b.unbound(pod, e.node)
	}
	b.release(e)
	b.queue.AddAfter(key(pod), delay)
	return nil
}

// cancel ends the errand of a pod that has gone, that somebody else has seen to, or that is bound.
func (b *Binder) cancel(pod *corev1.Pod) {
	e := b.errands.forget(pod.UID)
	switch {
	case e == nil:
	case e.placed():
		b.release(e)
	case pod.Spec.NodeName != e.node:
		b.unbound(pod, e.node)
		b.release(e)
	}
}

// release looks again at those who may have what an errand that has come to nothing had in view.
func (b *Binder) release(e *errand) {
	classes := map[string]bool{}
	for _, g := range e.gives {
		classes[helpers.GetPersistentVolumeClass(g.volume)] = true
	}
	for class := range classes {
		b.retryClass(class)
	}
	for _, c := range e.makes { // whoever shares it was to go to that node, too
		b.retryClaim(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	}
}

func key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
