// Package image keeps the node's container images: it pulls them from registries, loads them from archives, unpacks
// their layers into directories, and collects what nobody uses any more. It is built on containerd's packages, used as
// a library: no containerd daemon is involved.
//
// An image is identified by the digest of its configuration (the image id that CRI clients expect). It has names:
// tags (docker.io/library/busybox:latest) and digests (docker.io/library/busybox@sha256:...). It is listed while it
// has at least one name.
//
// It guarantees:
//   - a name is visible only when the image behind it is complete: configuration read, platform matched, every layer
//     unpacked and on disk. A pull that fails or is killed leaves no image; what it downloaded is kept for an hour, so
//     that the next pull of the same content goes on from there;
//   - the directories that Layers returns stay until the image has no name and no pin (Pin) any more;
//   - images are hostile input: one that is refused, or unpacked, changes nothing but its own directories, and whatever its size
//     is, a part of the disk stays free (limits.go);
//   - concurrent pulls of one reference share one download; layers that two images share are fetched and unpacked once;
//   - a crash at any point, kill -9 and power loss included, loses at most the operation that was under way.
//
// It does not keep compressed layers once they are unpacked: an image can be run and removed, not pushed again.
//
// Layout of Config.Root: content/ (manifests, configurations), downloads/
// (compressed layers under way), metadata.db (names, leases, which
// snapshot belongs to what), overlay/ (the unpacked layers and their own metadata.db), empty/ (the only layer of an
// image that has none). One process at a time can have it open.
package image
