package binder

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/binder/errand"
	"monopod.dev/monopod/internal/controllers/storageindex"
)

// A pod whose author has named its node stands in no line, and so nobody would choose volumes for those of its claims that wait for their first consumer: with
// Kubernetes such a pod never starts. Here the binder goes on an errand for it, as for any other pod, on its own node. It sees to the claims alone, and leaves the
// pod as it is.

// isPlaced says of a pod that it is on a node, and stays there. Most of these were bound by the binder, with their claims.
func isPlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && pod.Spec.SchedulerName == corev1.DefaultSchedulerName && isAlive(pod)
}

// supply begins an errand for a pod that is on a node, if it has claims that are in need of one.
func (b *Binder) supply(pod *corev1.Pod) error {
	if b.errands.Get(pod.UID) != nil {
		return nil // at its end the pod is looked at again
	}
	node, err := b.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		b.stranded.put(pod, "")
		return nil
	}
	if err != nil {
		return err
	}
	var s supply
	b.book.look([]*corev1.Node{node}, func(places []place) {
		s = cluster{places: places, storage: b.prospect}.supply(pod)
	})
	switch {
	case !s.plan.Empty():
		b.stranded.drop(pod.UID)
		b.start(pod, node.Name, s.plan)
	case !s.lacks:
		b.stranded.drop(pod.UID)
	case b.stranded.put(pod, s.why):
		b.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "The claims of the pod get no volumes on node %s, which the pod names itself: %s", node.Name, s.why)
	}
	return nil
}

// supply is what is done about the claims of a pod that is on a node.
type supply struct {
	// plan is what has to become of the claims.
	plan errand.Plan
	// lacks: some are not as they should be, and nothing can be done now. why is what the pod is told of that; empty: what its agent tells is enough.
	lacks bool
	why   string
}

// supply says what is done about the claims of a pod on the only place.
func (c cluster) supply(pod *corev1.Pod) supply {
	of, obstacle := c.claims(pod)
	switch {
	case of == nil:
		return supply{}
	case obstacle != "":
		return supply{lacks: true, why: of.refused}
	case len(of.late) == 0:
		return supply{}
	}
	of.taken = false // by the pod itself; its agent looks after those that one pod has at a time
	p, lacks := of.on(c.places[0].node)
	return supply{plan: p, lacks: len(lacks) > 0, why: strings.Join(lacks, ", ")}
}

// stranded are pods on nodes whose claims get no volumes there. The zero value is ready; its methods are safe for concurrent use.
type stranded struct {
	mu sync.Mutex
	of map[types.UID]strandedPod
}

type strandedPod struct {
	pod *corev1.Pod
	why string
}

// put notes a pod, and says whether it is to be told why: it was not told of this.
func (s *stranded) put(pod *corev1.Pod, why string) (tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[types.UID]strandedPod{}
	}
	tell = why != "" && s.of[pod.UID].why != why
	s.of[pod.UID] = strandedPod{pod, why}
	return tell
}

func (s *stranded) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, uid)
}

// on are those on a node; empty: on any.
func (s *stranded) on(node string) (all []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.of {
		if node == "" || of.pod.Spec.NodeName == node {
			all = append(all, of.pod)
		}
	}
	return all
}

// retryStranded looks again at the pods on a node, or on any, whose claims get no volumes.
func (b *Binder) retryStranded(node string) {
	for _, pod := range b.stranded.on(node) {
		b.queue.Add(key(pod))
	}
}

// retryClaim looks again at the pods that have a claim: those without a node, and those that are on one.
func (b *Binder) retryClaim(claim types.NamespacedName) {
	b.retry(b.line.claimingOf(claim), func(*waiter) bool { return true })
	for _, pod := range storageindex.PodsOf(b.pods, claim) {
		if isPlaced(pod) {
			b.queue.Add(key(pod))
		}
	}
}

// stands says whether an errand is still for a pod as it was when it began.
func (b *Binder) stands(e *errand.Errand) bool {
	obj, found, err := b.pods.GetStore().GetByKey(key(e.Pod).String())
	if err != nil || !found {
		return false
	}
	pod := obj.(*corev1.Pod)
	return pod.UID == e.Pod.UID && fits(e, pod)
}

// fits says of the pod of an errand, as it is now, that the errand is still of use.
func fits(e *errand.Errand, pod *corev1.Pod) bool {
	if e.Placed() {
		return isPlaced(pod) && pod.Spec.NodeName == e.Node
	}
	return isOurs(pod)
}

// notBound tells a pod on a node that an errand for it has come to nothing.
func (b *Binder) notBound(e *errand.Errand, why string) {
	b.log.Info("the claims of a pod that names its node are not bound, trying again", "namespace", e.Pod.Namespace, "pod", e.Pod.Name, "node", e.Node, "why", why)
	b.recorder.Event(e.Pod, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("The claims of the pod have got no volumes on node %s, which the pod names itself; trying again: %s", e.Node, why))
}
