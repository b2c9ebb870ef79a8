// Package revisions is the history of stateful sets and daemon sets: a ControllerRevision for each pod template that one has had and that is not forgotten.
//
// A revision's data is a patch that puts its template back; kubectl rollout undo applies it. Its name follows from the template, so that a controller that is
// killed at any moment makes no second one. The one of the template that an owner has now has the highest number: who goes back to an old template raises
// the number of its revision.
//
// Templates are compared by what they say, not by the bytes of the patch: those may be another version's, or upstream's.
package revisions
