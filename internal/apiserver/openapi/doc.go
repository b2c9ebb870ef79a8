// Package openapi holds the OpenAPI definitions of the served types. `make generate` writes it (hack/generate.sh), for
// the groups of package scheme; server-side apply, `kubectl explain` and field validation are made of it.
package openapi
