package binder

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	helpers "k8s.io/component-helpers/storage/volume"
)

// bindPatience is how long a pod keeps its place while its claims get their volumes, as with kube-scheduler.
const bindPatience = 10 * time.Minute

// errand is what is to be done before a pod can be bound to the node where it has its place: its plan. It is not kept beyond the binder's end, and need not be:
// what is written into volumes and claims leads the next binder to the same node.
//
//	decided --write volumes' claimRefs and claims' selected node--> written --others bind the claims--> done: the pod is bound
//	   |                                                               |
//	   +--- an object is gone or another's, the time is over ----------+--> failed: the pod is looked at anew
type errand struct {
	pod  *corev1.Pod
	node string
	plan
	until time.Time
	// written are the versions of the objects as they were written; err is why the last attempt at that has failed. Only who works on the errand knows them.
	written map[object]string
	err     error
}

func newErrand(pod *corev1.Pod, node string, p plan, now time.Time) *errand {
	return &errand{pod: pod, node: node, plan: p, until: now.Add(bindPatience), written: map[object]string{}}
}

// step is what comes next on an errand. If nothing does, it waits for others.
type step struct {
	// gives and makes are what is to be written: the volume as it is now, with the claim; the claim as it is now.
	gives []give
	makes []*corev1.PersistentVolumeClaim
	// done: the pod can be bound.
	done bool
	// failed is why nothing can come of it, in the words of kube-scheduler; quiet: nobody need be told, since it has not begun, or the next decision tells of it.
	failed string
	quiet  bool
}

// objects is how things are, as the watches show them; nil: there is none.
type objects interface {
	claim(name types.NamespacedName) *corev1.PersistentVolumeClaim
	volume(name string) *corev1.PersistentVolume
	class(name string) *storagev1.StorageClass
}

// placed: the pod is on its node already, and it is only for its claims' sake.
func (e *errand) placed() bool { return e.pod.Spec.NodeName != "" }

// next says what comes next; node is nil if it is gone.
func (e *errand) next(seen objects, node *corev1.Node, now time.Time) (next step) {
	next.done = true
	switch {
	case node == nil:
		return step{failed: fmt.Sprintf("failed to get node %q: node %q not found", e.node, e.node)}
	case !now.Before(e.until) && e.err != nil:
		return step{failed: e.err.Error()}
	case !now.Before(e.until):
		return step{failed: context.DeadlineExceeded.Error()}
	}
	for _, g := range e.gives {
		if e.nextGive(&next, g, seen, node); next.failed != "" {
			return next
		}
	}
	for _, claim := range e.makes {
		if e.nextMake(&next, claim, seen, node); next.failed != "" {
			return next
		}
	}
	return next
}

// nextGive is about a claim that gets a volume that is there.
func (e *errand) nextGive(next *step, g give, seen objects, node *corev1.Node) {
	v, claim := seen.volume(g.volume.Name), e.same(seen, g.claim)
	switch {
	case v == nil:
		*next = step{failed: fmt.Sprintf("failed to check binding: persistentvolume %q not found", g.volume.Name)}
	case claim == nil:
		*next = step{failed: fmt.Sprintf("failed to check binding: persistentvolumeclaim %q not found", g.claim.Name)}
	case e.stale(ofVolume(v.Name), v.ResourceVersion):
		next.done = false
	case helpers.CheckNodeAffinity(v, node.Labels) != nil:
		*next = unreachable(v, node)
	case v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == claim.UID: // written, by whomever
		next.done = next.done && isBound(claim)
	case e.written[ofVolume(v.Name)] != "":
		*next = step{failed: fmt.Sprintf("ClaimRef got reset for pv %q", v.Name)}
	case v.Spec.ClaimRef != nil && !helpers.IsVolumeBoundToClaim(v, claim), claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name:
		*next = step{failed: fmt.Sprintf("volume %q is not for claim %q any more", v.Name, claim.Name), quiet: true}
	default:
		next.gives, next.done = append(next.gives, give{claim, v}), false
	}
}

// nextMake is about a claim whose volume somebody makes.
func (e *errand) nextMake(next *step, planned *corev1.PersistentVolumeClaim, seen objects, node *corev1.Node) {
	claim := e.same(seen, planned)
	if claim == nil {
		*next = step{failed: fmt.Sprintf("failed to check provisioning pvc: persistentvolumeclaim %q not found", planned.Name)}
		return
	}
	o, chosen, class := ofClaim(claim), claim.Annotations[helpers.AnnSelectedNode], helpers.GetPersistentVolumeClaimClass(claim)
	switch {
	case e.stale(o, claim.ResourceVersion):
		next.done = false
		return
	case claim.Spec.VolumeName == "" && seen.class(class) == nil:
		*next = step{failed: fmt.Sprintf("the class %q of claim %q is gone", class, claim.Name), quiet: true}
		return
	case claim.Spec.VolumeName == "" && chosen == e.node && refusal(claim) != "":
		*next = step{failed: refusal(claim), quiet: true}
		return
	case chosen == e.node, e.written[o] == "" && claim.Spec.VolumeName != "":
	case e.written[o] != "": // a provisioner that cannot make it there takes the annotation off
		*next = step{failed: fmt.Sprintf("provisioning failed for PVC %q", claim.Name)}
		return
	case chosen != planned.Annotations[helpers.AnnSelectedNode]:
		*next = step{failed: fmt.Sprintf("the volume of claim %q is made for another node", claim.Name), quiet: true}
		return
	default:
		next.makes, next.done = append(next.makes, claim), false
		return
	}
	if claim.Spec.VolumeName != "" {
		v := seen.volume(claim.Spec.VolumeName)
		if v == nil { // it is seen in a moment
			next.done = false
			return
		}
		if helpers.CheckNodeAffinity(v, node.Labels) != nil {
			*next = unreachable(v, node)
			return
		}
	}
	next.done = next.done && isBound(claim)
}

func unreachable(v *corev1.PersistentVolume, node *corev1.Node) step {
	return step{failed: fmt.Sprintf("pv %q node affinity doesn't match node %q: %s", v.Name, node.Name, helpers.CheckNodeAffinity(v, node.Labels))}
}

// same is a claim as it is now; nil: it is gone, though there may be another one of its name.
func (e *errand) same(seen objects, planned *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	if c := seen.claim(types.NamespacedName{Namespace: planned.Namespace, Name: planned.Name}); c != nil && c.UID == planned.UID {
		return c
	}
	return nil
}

func (e *errand) wrote(o object, version string) { e.written[o], e.err = version, nil }

// stale says of the version of an object that the watch does not show yet what was written into it.
func (e *errand) stale(o object, version string) bool {
	written := e.written[o]
	if written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err == nil && order < 0
}

// trouble keeps an error for the case that there is no time left to try again.
func (e *errand) trouble(err error) error {
	e.err = err
	return err
}

// errands are those under way. Whoever decides sees their ends as reached: what one has in view is for nobody else.
type errands struct {
	mu sync.Mutex
	of map[types.UID]*errand
	// by are those that have to do with an object.
	by map[object]map[types.UID]*errand
	// setbacks are of pods whose last errands came to nothing.
	setbacks map[types.UID]setback
}

type setback struct {
	times int
	until time.Time
}

// object is a claim or, without a namespace, a volume.
type object struct{ namespace, name string }

func ofVolume(name string) object                    { return object{"", name} }
func ofClaim(c *corev1.PersistentVolumeClaim) object { return object{c.Namespace, c.Name} }

// objects are those that an errand has to do with.
func (e *errand) objects() (all []object) {
	for _, g := range e.gives {
		all = append(all, ofVolume(g.volume.Name), ofClaim(g.claim))
	}
	for _, c := range e.makes {
		all = append(all, ofClaim(c))
	}
	return all
}

func (s *errands) add(e *errand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.by, s.setbacks = map[types.UID]*errand{}, map[object]map[types.UID]*errand{}, map[types.UID]setback{}
	}
	s.take(e.pod.UID)
	s.of[e.pod.UID] = e
	for _, o := range e.objects() {
		if s.by[o] == nil {
			s.by[o] = map[types.UID]*errand{}
		}
		s.by[o][e.pod.UID] = e
	}
}

func (s *errands) take(uid types.UID) *errand {
	e := s.of[uid]
	if e == nil {
		return nil
	}
	delete(s.of, uid)
	for _, o := range e.objects() {
		if delete(s.by[o], uid); len(s.by[o]) == 0 {
			delete(s.by, o)
		}
	}
	return e
}

func (s *errands) get(uid types.UID) *errand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[uid]
}

// about are the pods whose errands have to do with an object.
func (s *errands) about(o object) (uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.by[o] {
		uids = append(uids, uid)
	}
	return uids
}

// some are the pods whose errands are of a kind.
func (s *errands) some(are func(*errand) bool) (uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.of {
		if are(e) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// on are the pods whose errands are for a node.
func (s *errands) on(node string) []types.UID {
	return s.some(func(e *errand) bool { return e.node == node })
}

// find is an errand of a kind that has to do with an object; nil: there is none.
func (s *errands) find(o object, is func(*errand) bool) *errand {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.by[o] {
		if is(e) {
			return e
		}
	}
	return nil
}

// drop ends the errand of a pod.
func (s *errands) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(uid)
}

// forget ends all that there is of a pod, and returns its errand; nil: it had none.
func (s *errands) forget(uid types.UID) *errand {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.setbacks, uid)
	return s.take(uid)
}

// The pauses before a pod whose errand has come to nothing is looked at again. They double.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// giveUp ends an errand, and says for how long its pod is left alone.
func (s *errands) giveUp(e *errand, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(e.pod.UID)
	b := s.setbacks[e.pod.UID]
	pause := min(firstPause<<min(b.times, 10), longestPause)
	s.setbacks[e.pod.UID] = setback{b.times + 1, now.Add(pause)}
	return pause
}

// pause is for how long a pod is still left alone; 0: it is not.
func (s *errands) pause(uid types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.setbacks[uid].until.Sub(now))
}
