// Package rbac decides by the roles and bindings that are stored, as rbac.authorization.k8s.io/v1 documents.
//
// A Policy holds what the four resources say in the form that decisions want: bindings by who they are for, rules by the role that has them. A decision
// looks up the caller's name and groups, and compares the rules of their roles; how many bindings others have makes no difference. It is fed by a list and
// a watch of the storages, level-triggered: what is in the store is in force, in whatever order it came, and a watch that breaks begins with a list again.
//
// It guarantees that no decision is made before all four resources have been read. It does not guarantee that a write by another API server on the same
// store is in force at once; whoever writes here waits for that with Await.
package rbac
