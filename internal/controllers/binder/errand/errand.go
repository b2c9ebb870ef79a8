// Package errand says what is to be done about the volumes of a pod's claims before the pod can be bound to a node, and keeps what is under way. It writes nothing: the
// binder acts.
package errand

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	helpers "k8s.io/component-helpers/storage/volume"
)

// Patience is how long a pod keeps its place while its claims get their volumes, as with kube-scheduler.
const Patience = 10 * time.Minute

// Errand is what is to be done before a pod can be bound to the node where it has its place: its plan. It is not kept beyond the binder's end, and need not be:
// what is written into volumes and claims leads the next binder to the same node.
//
//	decided --write volumes' claimRefs and claims' selected node--> written --others bind the claims--> done: the pod is bound
//	   |                                                               |
//	   +--- an object is gone or another's, the time is over ----------+--> failed: the pod is looked at anew
type Errand struct {
	Pod  *corev1.Pod
	Node string
	Plan
	// Until is when it has failed.
	Until time.Time
	// written are the versions of the objects as they were written; err is why the last attempt at that has failed. Only who works on the errand knows them.
	written map[Object]string
	err     error
}

// New is the errand for a pod, with a plan, that begins now.
func New(pod *corev1.Pod, node string, p Plan, now time.Time) *Errand {
	return &Errand{Pod: pod, Node: node, Plan: p, Until: now.Add(Patience), written: map[Object]string{}}
}

// Step is what comes next on an errand. If nothing does, it waits for others.
type Step struct {
	// Gives and Makes are what is to be written: the volume as it is now, with the claim; the claim as it is now.
	Gives []Give
	Makes []*corev1.PersistentVolumeClaim
	// Done: the pod can be bound.
	Done bool
	// Failed is why nothing can come of it, in the words of kube-scheduler; Quiet: nobody need be told, since it has not begun, or the next decision tells of it.
	Failed string
	Quiet  bool
}

// Objects is how things are, as the watches show them; nil: there is none.
type Objects interface {
	Claim(name types.NamespacedName) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
	Class(name string) *storagev1.StorageClass
}

// Placed: the pod is on its node already, and it is only for its claims' sake.
func (e *Errand) Placed() bool { return e.Pod.Spec.NodeName != "" }

// Next says what comes next; node is nil if it is gone.
func (e *Errand) Next(seen Objects, node *corev1.Node, now time.Time) (next Step) {
	next.Done = true
	switch {
	case node == nil:
		return Step{Failed: fmt.Sprintf("failed to get node %q: node %q not found", e.Node, e.Node)}
	case !now.Before(e.Until) && e.err != nil:
		return Step{Failed: e.err.Error()}
	case !now.Before(e.Until):
		return Step{Failed: context.DeadlineExceeded.Error()}
	}
	for _, g := range e.Gives {
		if e.nextGive(&next, g, seen, node); next.Failed != "" {
			return next
		}
	}
	for _, claim := range e.Makes {
		if e.nextMake(&next, claim, seen, node); next.Failed != "" {
			return next
		}
	}
	return next
}

// nextGive is about a claim that gets a volume that is there.
func (e *Errand) nextGive(next *Step, g Give, seen Objects, node *corev1.Node) {
	v, claim := seen.Volume(g.Volume.Name), e.same(seen, g.Claim)
	switch {
	case v == nil:
		*next = Step{Failed: fmt.Sprintf("failed to check binding: persistentvolume %q not found", g.Volume.Name)}
	case claim == nil:
		*next = Step{Failed: fmt.Sprintf("failed to check binding: persistentvolumeclaim %q not found", g.Claim.Name)}
	case e.stale(OfVolume(v.Name), v.ResourceVersion):
		next.Done = false
	case helpers.CheckNodeAffinity(v, node.Labels) != nil:
		*next = unreachable(v, node)
	case v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == claim.UID: // written, by whomever
		next.Done = next.Done && IsBound(claim)
	case e.written[OfVolume(v.Name)] != "":
		*next = Step{Failed: fmt.Sprintf("ClaimRef got reset for pv %q", v.Name)}
	case v.Spec.ClaimRef != nil && !helpers.IsVolumeBoundToClaim(v, claim), claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name:
		*next = Step{Failed: fmt.Sprintf("volume %q is not for claim %q any more", v.Name, claim.Name), Quiet: true}
	default:
		next.Gives, next.Done = append(next.Gives, Give{claim, v}), false
	}
}

// nextMake is about a claim whose volume somebody makes.
func (e *Errand) nextMake(next *Step, planned *corev1.PersistentVolumeClaim, seen Objects, node *corev1.Node) {
	claim := e.same(seen, planned)
	if claim == nil {
		*next = Step{Failed: fmt.Sprintf("failed to check provisioning pvc: persistentvolumeclaim %q not found", planned.Name)}
		return
	}
	o, chosen, class := OfClaim(claim), claim.Annotations[helpers.AnnSelectedNode], helpers.GetPersistentVolumeClaimClass(claim)
	switch {
	case e.stale(o, claim.ResourceVersion):
		next.Done = false
		return
	case claim.Spec.VolumeName == "" && seen.Class(class) == nil:
		*next = Step{Failed: fmt.Sprintf("the class %q of claim %q is gone", class, claim.Name), Quiet: true}
		return
	case claim.Spec.VolumeName == "" && chosen == e.Node && Refusal(claim) != "":
		*next = Step{Failed: Refusal(claim), Quiet: true}
		return
	case chosen == e.Node, e.written[o] == "" && claim.Spec.VolumeName != "":
	case e.written[o] != "": // a provisioner that cannot make it there takes the annotation off
		*next = Step{Failed: fmt.Sprintf("provisioning failed for PVC %q", claim.Name)}
		return
	case chosen != planned.Annotations[helpers.AnnSelectedNode]:
		*next = Step{Failed: fmt.Sprintf("the volume of claim %q is made for another node", claim.Name), Quiet: true}
		return
	default:
		next.Makes, next.Done = append(next.Makes, claim), false
		return
	}
	if claim.Spec.VolumeName != "" {
		v := seen.Volume(claim.Spec.VolumeName)
		if v == nil { // it is seen in a moment
			next.Done = false
			return
		}
		if helpers.CheckNodeAffinity(v, node.Labels) != nil {
			*next = unreachable(v, node)
			return
		}
	}
	next.Done = next.Done && IsBound(claim)
}

func unreachable(v *corev1.PersistentVolume, node *corev1.Node) Step {
	return Step{Failed: fmt.Sprintf("pv %q node affinity doesn't match node %q: %s", v.Name, node.Name, helpers.CheckNodeAffinity(v, node.Labels))}
}

// same is a claim as it is now; nil: it is gone, though there may be another one of its name.
func (e *Errand) same(seen Objects, planned *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	if c := seen.Claim(types.NamespacedName{Namespace: planned.Namespace, Name: planned.Name}); c != nil && c.UID == planned.UID {
		return c
	}
	return nil
}

// Wrote notes that an object was written, and the version that it has of it.
func (e *Errand) Wrote(o Object, version string) { e.written[o], e.err = version, nil }

// stale says of the version of an object that the watch does not show yet what was written into it.
func (e *Errand) stale(o Object, version string) bool {
	written := e.written[o]
	if written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err == nil && order < 0
}

// Trouble keeps an error for the case that there is no time left to try again.
func (e *Errand) Trouble(err error) error {
	e.err = err
	return err
}

// Table are the errands under way. Whoever decides sees their ends as reached: what one has in view is for nobody else.
type Table struct {
	mu sync.Mutex
	of map[types.UID]*Errand
	// by are those that have to do with an object.
	by map[Object]map[types.UID]*Errand
	// setbacks are of pods whose last errands came to nothing.
	setbacks map[types.UID]setback
}

type setback struct {
	times int
	until time.Time
}

// Object is a claim or, without a namespace, a volume.
type Object struct{ Namespace, Name string }

// OfVolume is a volume.
func OfVolume(name string) Object { return Object{Name: name} }

// OfClaim is a claim.
func OfClaim(c *corev1.PersistentVolumeClaim) Object { return Object{c.Namespace, c.Name} }

// objects are those that an errand has to do with.
func (e *Errand) objects() (all []Object) {
	for _, g := range e.Gives {
		all = append(all, OfVolume(g.Volume.Name), OfClaim(g.Claim))
	}
	for _, c := range e.Makes {
		all = append(all, OfClaim(c))
	}
	return all
}

// Add begins an errand, in the place of the one that its pod had.
func (s *Table) Add(e *Errand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.by, s.setbacks = map[types.UID]*Errand{}, map[Object]map[types.UID]*Errand{}, map[types.UID]setback{}
	}
	s.take(e.Pod.UID)
	s.of[e.Pod.UID] = e
	for _, o := range e.objects() {
		if s.by[o] == nil {
			s.by[o] = map[types.UID]*Errand{}
		}
		s.by[o][e.Pod.UID] = e
	}
}

// take ends the errand of a pod; the lock is held.
func (s *Table) take(uid types.UID) *Errand {
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

// Get is the errand of a pod; nil: it has none.
func (s *Table) Get(uid types.UID) *Errand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[uid]
}

// About are the pods whose errands have to do with an object.
func (s *Table) About(o Object) (uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.by[o] {
		uids = append(uids, uid)
	}
	return uids
}

// Some are the pods whose errands are of a kind.
func (s *Table) Some(are func(*Errand) bool) (uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.of {
		if are(e) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// On are the pods whose errands are for a node.
func (s *Table) On(node string) []types.UID {
	return s.Some(func(e *Errand) bool { return e.Node == node })
}

// Find is an errand of a kind that has to do with an object; nil: there is none.
func (s *Table) Find(o Object, is func(*Errand) bool) *Errand {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.by[o] {
		if is(e) {
			return e
		}
	}
	return nil
}

// Drop ends the errand of a pod.
func (s *Table) Drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(uid)
}

// Forget ends all that there is of a pod, and returns its errand; nil: it had none.
func (s *Table) Forget(uid types.UID) *Errand {
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

// GiveUp ends an errand, and says for how long its pod is left alone.
func (s *Table) GiveUp(e *Errand, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(e.Pod.UID)
	b := s.setbacks[e.Pod.UID]
	pause := min(firstPause<<min(b.times, 10), longestPause)
	s.setbacks[e.Pod.UID] = setback{b.times + 1, now.Add(pause)}
	return pause
}

// Pause is for how long a pod is still left alone; 0: it is not.
func (s *Table) Pause(uid types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.setbacks[uid].until.Sub(now))
}

// Plan is what has to become of a pod's claims before it is bound to a node.
type Plan struct {
	// Gives are claims that get a volume that is there.
	Gives []Give
	// Makes are claims whose volumes are made for the node, or are being made already.
	Makes []*corev1.PersistentVolumeClaim
}

// Give is a claim and the volume that it gets.
type Give struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
}

// Empty: the pod can be bound at once.
func (p Plan) Empty() bool { return len(p.Gives)+len(p.Makes) == 0 }

// WillMake says whether an errand has the volume of a claim made.
func (e *Errand) WillMake(claim *corev1.PersistentVolumeClaim) bool {
	for _, c := range e.Makes {
		if c.UID == claim.UID {
			return true
		}
	}
	return false
}

// Given is a volume as it will be when it has been given to a claim; nil: that claim does not get it.
func (e *Errand) Given(v *corev1.PersistentVolume, claim types.UID) (*corev1.PersistentVolume, error) {
	for _, g := range e.Gives {
		if g.Volume.Name == v.Name && g.Claim.UID == claim {
			v, _, err := helpers.GetBindVolumeToClaim(v, g.Claim)
			return v, err
		}
	}
	return nil, nil
}

// provisioningFailed is the condition of a claim in which its provisioner says why it makes no volume for it, for as long as that is so. The node's own provisioner
// tells that (package storage); those of others have events alone, which nobody can rely on.
const provisioningFailed corev1.PersistentVolumeClaimConditionType = "monopod.dev/ProvisioningFailed"

// Refusal is what the provisioner of a claim has against making its volume; empty: nothing.
func Refusal(claim *corev1.PersistentVolumeClaim) string {
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == provisioningFailed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("persistentvolumeclaim %q gets no volume: %s", claim.Name, c.Message)
		}
	}
	return ""
}

// IsBound says whether a claim has a volume, and all that belongs to that is written.
func IsBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, helpers.AnnBindCompleted)
}
