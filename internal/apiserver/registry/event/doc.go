// Package event serves events, as core/v1 and as events.k8s.io/v1.
//
// There is one stored form, core/v1's, and one storage, which both API groups share: an event that is written through
// the one is read through the other. conversion.go says how the fields of the two correspond; nothing is lost in either
// direction.
//
// Events are not kept: the store drops one an hour after it was last written.
package event
