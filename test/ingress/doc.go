// Package ingress holds a node against an ingress controller of others, unmodified: Traefik, a single Go program, in a pod behind a Service of the type
// LoadBalancer. It follows ingresses, classes, services, endpoints and secrets by the API, and leads requests from outside to pods.
//
// $MONOPOD_TRAEFIK is the program; `make test-ingress` builds it. The tests are built with the tag "ingress" only, so that `go test ./...` needs none.
package ingress
