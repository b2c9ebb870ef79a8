// Package openapi holds the OpenAPI definitions of the served types. `make generate` writes it (hack/generate.sh, which
// names the packages); server-side apply, `kubectl explain` and field validation are made of it.
package openapi
