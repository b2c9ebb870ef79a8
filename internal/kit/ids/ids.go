// Package ids are the kinds of ids that meet in the node, a type each, so that none is taken for another one, nor for a name. They are strings
// wherever they come from or go to: in the messages of CRI, in JSON and on the command line.
//
// A pod's UID is a types.UID of k8s.io/apimachinery wherever that may be imported.
package ids

// SandboxID is the id of a pod sandbox, as the runtime gives it (CRI: pod_sandbox_id).
type SandboxID string

// ContainerID is the id of a container, as the runtime gives it (CRI: container_id). It is no container's name: that is a string. What the
// executor holds for a sandbox, a pod's init, is one of its containers, under the sandbox's id.
type ContainerID string

// ExecID is the id of a further process in a container, as the runtime gives it. It is unique in its container.
type ExecID string

// ImageID is the id of an image: the digest of its configuration, "sha256:" and 64 hex digits (CRI: Image.id, image_id). It is neither the digest of its
// manifest, which a registry knows it by, nor a name. Where CRI takes a reference (ImageSpec.image) or tells one (image_ref), an id may stand for one: those
// are strings.
type ImageID string
