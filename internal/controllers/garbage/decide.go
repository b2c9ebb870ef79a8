package garbage

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// standing is how an owner is.
type standing int

const (
	// there: it is, and keeps what it owns.
	there standing = iota
	// absent: it is not.
	absent
	// awaiting: its deletion waits for what it owns to go.
	awaiting
)

// action is what is done about an object.
type action struct {
	// disown are owners that it loses.
	disown []types.UID
	// unblock: nobody's deletion waits for it any more.
	unblock bool
	// remove: it is deleted; then policy says what becomes of those that it owns.
	remove bool
	policy metav1.DeletionPropagation
}

// decide says what is to be done about an object as the API server has it now. owners says how each of its owners is, dependents that it owns others,
// circular that the deletion of one of these waits for dependents, too.
func decide(m *metav1.PartialObjectMetadata, owners []standing, dependents, circular bool) (a action) {
	has := func(s standing) bool { return slices.Contains(owners, s) }
	switch {
	case len(owners) == 0:
		return action{}
	case has(there):
		// Who keeps it goes on doing so. The others must not be kept waiting for it.
		for i, s := range owners {
			if s != there {
				a.disown = append(a.disown, m.OwnerReferences[i].UID)
			}
		}
		return a
	case has(awaiting) && dependents:
		// What it owns goes before it does. Where that leads back to it, two would wait for each other.
		return action{remove: true, policy: metav1.DeletePropagationForeground, unblock: circular}
	case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
		return action{remove: true, policy: metav1.DeletePropagationOrphan}
	case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents):
		return action{remove: true, policy: metav1.DeletePropagationForeground}
	default:
		return action{remove: true, policy: metav1.DeletePropagationBackground}
	}
}
