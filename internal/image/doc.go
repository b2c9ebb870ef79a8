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
//     is, a part of the disk stays free (package room);
//   - concurrent pulls of one reference share one download; layers that two images share are fetched and unpacked once;
//   - a crash at any point, kill -9 and power loss included, loses at most the operation that was under way.
//
// It does not keep compressed layers once they are unpacked: an image can be run and removed, not pushed again.
//
// This package joins the others, each of which does one thing: a pull asks a registry (registry) what the reference means, unpack brings what is missing
// into the store (store), by downloads (download, decompress, untar) that a recipe is written of (recipe), and then the image gets its names. A load
// does the same with an archive (archive), and a save writes one. document, imageref, room and faults are what all of them know.
package image
