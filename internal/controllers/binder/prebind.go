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

	"monopod.dev/monopod/internal/controllers/binder/errand"
	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/volumebinding"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/pods"
)

// errandWorkers is how many errands are worked on at a time: what takes its time is to write the objects.
const errandWorkers = 4

// start begins an errand: the pod has its place from now on, and is bound when its claims are. What was decided may be late: the pod may have gone, and nobody tells
// of that again; the errand's first step finds out.
func (b *Binder) start(pod *corev1.Pod, node string, p errand.Plan) {
	e := errand.New(pod, node, p, time.Now())
	if !e.Placed() {
		b.book.assume(pod, node)
	}
	b.errands.Add(e)
	b.toDo.Add(pod.UID)
}

// errand goes on with one.
func (b *Binder) errand(ctx context.Context, uid types.UID) error {
	e := b.errands.Get(uid)
	if e == nil {
		return nil
	}
	if !b.stands(e) {
		b.cancel(e.Pod)
		return nil
	}
	node, err := b.nodes.Get(e.Node)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	next := e.Next(b.shelves, node, time.Now())
	switch {
	case next.Failed != "":
		return b.giveUp(ctx, e, next)
	case next.Done && e.Placed():
		b.errands.Drop(uid)
		b.queue.Add(key(e.Pod)) // it may have claims that were not there when the errand began
		return nil
	case next.Done:
		if err := b.bind(ctx, e.Pod, e.Node); err != nil {
			b.log.Warn("cannot bind pod, trying again", "namespace", e.Pod.Namespace, "pod", e.Pod.Name, "error", err)
			b.queue.Add(key(e.Pod))
		}
		b.errands.Drop(uid)
		return nil
	}
	for _, g := range next.Gives {
		if err := b.give(ctx, e, g); err != nil {
			return e.Trouble(fmt.Errorf("give volume %s to claim %s: %w", g.Volume.Name, g.Claim.Name, err))
		}
	}
	for _, claim := range next.Makes {
		if err := b.mark(ctx, e, claim); err != nil {
			return e.Trouble(fmt.Errorf("write into claim %s that its pod gets node %s: %w", claim.Name, e.Node, err))
		}
	}
	b.toDo.AddAfter(uid, time.Until(e.Until))
	return nil
}

// give has a volume point at a claim. The controller of volumes does the rest of the binding.
func (b *Binder) give(ctx context.Context, e *errand.Errand, g errand.Give) error {
	if err := failpoint.Hit("controllers/binder/give"); err != nil {
		return err
	}
	v, _, err := helpers.GetBindVolumeToClaim(g.Volume, g.Claim)
	if err == nil {
		v, err = b.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	}
	if err == nil {
		e.Wrote(errand.OfVolume(v.Name), v.ResourceVersion)
	}
	return err
}

// mark writes into a claim for which node its volume is made, and by whom: the controller of volumes would write the latter next, and the provisioner would wait for it.
func (b *Binder) mark(ctx context.Context, e *errand.Errand, claim *corev1.PersistentVolumeClaim) error {
	if err := failpoint.Hit("controllers/binder/mark"); err != nil {
		return err
	}
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, helpers.AnnSelectedNode, e.Node)
	if class := b.shelves.Class(helpers.GetPersistentVolumeClaimClass(claim)); class != nil && volumebinding.Outside(class.Provisioner) {
		claim, _ = volumebinding.Announced(claim, class.Provisioner)
	}
	claim, err := b.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err == nil {
		e.Wrote(errand.OfClaim(claim), claim.ResourceVersion)
	}
	return err
}

// giveUp ends an errand that comes to nothing: the pod is told, unless things have only changed under way, loses its place, and is looked at again.
func (b *Binder) giveUp(ctx context.Context, e *errand.Errand, why errand.Step) error {
	pod := e.Pod
	if obj, found, err := b.pods.GetStore().GetByKey(key(pod).String()); err == nil && found && obj.(*corev1.Pod).UID == pod.UID {
		pod = obj.(*corev1.Pod)
	}
	switch {
	case why.Quiet:
	case e.Placed():
		b.notBound(e, why.Failed)
	case isOurs(pod):
		told := `running PreBind plugin "VolumeBinding": binding volumes: ` + why.Failed
		st := waiting(pod, told, false, time.Now())
		c := pods.Condition(&st, corev1.PodScheduled)
		c.Reason = corev1.PodReasonSchedulerError
		if !apiequality.Semantic.DeepEqual(st, pod.Status) {
			if err := b.patchStatus(ctx, pod, "", st); err != nil && !owned.Gone(ctx, b.client, pod, err) {
				return fmt.Errorf("write that its volumes are not bound (%s): %w", why.Failed, err)
			}
		}
		b.log.Info("the volumes of a pod are not bound, trying again", "namespace", pod.Namespace, "pod", pod.Name, "node", e.Node, "why", why.Failed)
		b.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", told)
	}
	delay := b.errands.GiveUp(e, time.Now())
	if !e.Placed() {
		b.unbound(pod, e.Node)
	}
	b.release(e)
	b.queue.AddAfter(key(pod), delay)
	return nil
}

// cancel ends the errand of a pod that has gone, that somebody else has seen to, or that is bound.
func (b *Binder) cancel(pod *corev1.Pod) {
	e := b.errands.Forget(pod.UID)
	switch {
	case e == nil:
	case e.Placed():
		b.release(e)
	case pod.Spec.NodeName != e.Node:
		b.unbound(pod, e.Node)
		b.release(e)
	}
}

// release looks again at those who may have what an errand that has come to nothing had in view.
func (b *Binder) release(e *errand.Errand) {
	classes := map[string]bool{}
	for _, g := range e.Gives {
		classes[helpers.GetPersistentVolumeClass(g.Volume)] = true
	}
	for class := range classes {
		b.retryClass(class)
	}
	for _, c := range e.Makes { // whoever shares it was to go to that node, too
		b.retryClaim(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	}
}

func key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
