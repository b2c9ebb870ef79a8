// Package pods is what a pod's specification means, for all who read one: the API server, which decides what a client may create, the agent, which
// runs it, and the controllers. It is pure.
//
// Package fields below it says which fields are honoured, by whom.
package pods
