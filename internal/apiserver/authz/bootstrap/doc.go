// Package bootstrap has the roles and bindings that every cluster begins with, under upstream's names, and brings those that are stored up to them.
//
// What users may do with the resources that are served (the cluster roles view, edit and admin) follows from what the resources declare; the rest is the
// tables in this package. Roles of parts that do not exist here are left out: those that upstream's controllers and scheduler need are there, so that
// they can be run against this API server.
//
// Reconcile adds what is missing and takes nothing away: an administrator's additions stay. An object with the annotation
// rbac.authorization.kubernetes.io/autoupdate: "false" is left as it is.
package bootstrap
