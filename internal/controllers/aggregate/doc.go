// Package aggregate keeps cluster roles complete that are made of others: the rules of a cluster role with an aggregationRule are those of all cluster roles
// that its selectors choose.
//
// Whoever labels a role "rbac.authorization.k8s.io/aggregate-to-view: true" so adds to what the role view may. What is written into the rules of such a role by
// others is replaced.
//
// It keeps nothing: what should be is compared with what is, for all such roles, whenever a cluster role has changed. An aggregated role that others are made of
// in turn changes them with its own change.
package aggregate
