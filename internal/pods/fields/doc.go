// Package fields says of every field that a pod's specification is made of who honours it: one table, a column for each role that reads one. Nobody
// ignores a field in silence: what is not honoured is refused by name, by the API server when the pod is created, by the agent, which may work in
// somebody else's cluster, when it is told to run it.
//
// A test holds the table against the Go types: a field that a newer version of the API adds is listed here before it is accepted.
package fields
