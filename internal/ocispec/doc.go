// Package ocispec turns what CRI and the image say about a container into an OCI runtime specification.
//
// It is pure: it reads no file, asks no kernel and starts nothing. What depends on the host (resolved paths, device numbers,
// capabilities, page sizes) comes in through Input, so the same input always gives the same specification.
//
// Every field of the CRI messages that it gets is either honoured or refused with an error that names the field by its name in
// the proto (k8s.io/cri-api, api.proto): InvalidArgument where the request contradicts itself, NotImplemented where this
// version cannot do it, FailedPrecondition where this host cannot.
//
// CDI edits and the default seccomp profile are applied by the caller afterwards: the first need the host's CDI
// folders, and github.com/containerd/containerd/v2/contrib/seccomp.DefaultProfile asks the kernel for its version (which
// is all that it asks) and the finished specification for its capabilities.
package ocispec
