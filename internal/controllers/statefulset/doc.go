// Package statefulset is the controller of stateful sets: pods with names that stay, made one after another, scaled down from the highest ordinal, and moved
// to a new template from the highest ordinal on.
//
// What is to be done follows from the set, its pods and its revisions alone (Decide), and while the caches do not show all that was written for a set nothing
// is decided. The names of pods and revisions follow from the set, so that a controller that is killed at any moment makes none twice.
//
// It is upstream's in what it does, in its labels, status, reasons and events; so either can take over what the other one has begun. But for this: with
// OrderedReady upstream's waits for a pod of a broken template also when the set has a better one by then, until somebody deletes the pod. Here it is made anew
// with what the set has now.
package statefulset
