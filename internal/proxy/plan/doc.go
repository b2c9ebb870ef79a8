// Package plan says what is done with packets for a service: from the Service, its EndpointSlices and the node it is about, and from nothing else. It is pure.
//
// Whatever the objects hold, a plan is made: what cannot be served of a service is left out and named in Faults, and the rest is served.
package plan
