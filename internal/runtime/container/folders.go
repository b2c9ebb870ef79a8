package container

import "monopod.dev/monopod/internal/kit/ids"

import "path/filepath"

// Folders is where the files of containers are. Layers holds each container's writable layer, and outlives a reboot; Bundles all else, for
// this boot.
type Folders struct{ Layers, Bundles string }

// Written is the directory of all that a container has written, over its image and into the volumes that the image declares.
func (f Folders) Written(id ids.ContainerID) string { return filepath.Join(f.Layers, string(id)) }

// Upper is the directory of what a container has written over its image.
func (f Folders) Upper(id ids.ContainerID) string { return filepath.Join(f.Written(id), "upper") }

// Bundle is the folder of a container's config.json, root file system and record.
func (f Folders) Bundle(id ids.ContainerID) string { return filepath.Join(f.Bundles, string(id)) }

// RootFS is where a container's root file system is mounted.
func (f Folders) RootFS(id ids.ContainerID) string { return filepath.Join(f.Bundle(id), "rootfs") }

// Devices is where the device nodes of a container are that it mounts.
func (f Folders) Devices(id ids.ContainerID) string { return filepath.Join(f.Bundle(id), "devices") }

// Volumes is where the runtime keeps what it has mounted for a container's mounts.
func (f Folders) Volumes(id ids.ContainerID) string { return filepath.Join(f.Bundle(id), "volumes") }
