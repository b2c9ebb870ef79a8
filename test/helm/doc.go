// Package helm holds a node against Helm, unmodified: three charts in the layout of `helm create`, made of the workloads, services, policies and roles that
// charts are made of, are installed, upgraded, rolled back and removed, with hooks, waits and tests.
//
// $MONOPOD_HELM is the program; `make test-helm` builds those of the versions that the Makefile names. The tests are built with the tag "helm" only, so that
// `go test ./...` needs no Helm.
package helm
