// Package rbac serves the resources of rbac.authorization.k8s.io/v1: roles, rolebindings, clusterroles and clusterrolebindings.
//
// Nobody gives what they have not got: a role is written by who has all rights that are in it, or the verb escalate on it; a binding by who has all
// rights of the role that it names, or the verb bind on that role. Members of system:masters may write any.
//
// What is written is in force when the answer is given: whoever was told that a binding exists can use its rights with the next request.
package rbac
