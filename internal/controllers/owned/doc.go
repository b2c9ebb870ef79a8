// Package owned is what controllers have in common whose objects own others: a replica set its pods, a deployment its replica sets.
//
//   - Index finds the dependents of an owner, and those that have no owner yet, in an informer's cache.
//   - Selectors finds owners by what they select, Labelled objects by their labels; Takers are owners that could take over what has none.
//   - Dependents wakes an owner when one of its dependents changes.
//   - Claim says which dependents are an owner's, which it takes over and which it lets go; Claimer does that.
//   - Pods makes pods from a template, claims and deletes them, with the events that people know.
//   - Pace says how fast they are made, all controllers together.
//   - Unseen knows what was written and what the caches do not show yet.
//
// Nothing here outlives the process: whose a dependent is stands in its owner reference.
package owned
