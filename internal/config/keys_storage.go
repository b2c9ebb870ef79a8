package config

import (
	"path/filepath"

	"monopod.dev/monopod/api/config/v1alpha1"
)

var storageKeys = []Setting{
	{
		Name: "storage.directory", Flag: "storage-dir", Value: "DIR", Group: GroupStorage, Roles: Storage, Otherwise: "volumes, in dataDir",
		Words: "directory of the volumes of claims, on a disk that is there at each start",
		More:  "Volumes stay where they were made: do not change it while there are any. `monopod reset` leaves them unless it is told otherwise ([STORAGE.md](STORAGE.md)).", rule: absolute,
	},
	{
		Name: "storage.provisioner", Flag: "storage-provisioner", Value: "MODE", Group: GroupStorage, Roles: Storage, Default: Enabled,
		Words: "volumes for claims of classes with the provisioner monopod.dev/local, and the default class local: enabled or disabled",
		More:  "With disabled no volume is made or removed; those that are there can be used.", rule: onOrOff,
	},
}

// StorageDir is the directory of the volumes of claims.
func StorageDir(c *v1alpha1.NodeConfiguration) string {
	if c.Storage.Directory != "" {
		return c.Storage.Directory
	}
	return filepath.Join(c.DataDir, "volumes")
}
