// Package storage makes the volumes of the provisioner monopod.dev/local: a directory for each claim, on this node's disk, and a PersistentVolume of the kind local
// that any kubelet can mount.
//
// It guarantees:
//   - a volume's directory is recorded before it is made, and the PersistentVolume comes after all of it, so that a kill at any step is completed or undone;
//   - data go only with a PersistentVolume that is Released and whose policy is Delete, by what the store says at that moment and not by what was seen before,
//     once the deletion of that PersistentVolume has begun; or with a directory that was begun, is empty, and that nobody wants any more;
//   - a directory that nobody knows stays, and one that is not there is never made anew: both are told of.
//
// It speaks with the API alone, as provisioners outside of Kubernetes do: it reads the annotations of claims and writes PersistentVolumes, claims' statuses and
// events. Others bind the two.
package storage
