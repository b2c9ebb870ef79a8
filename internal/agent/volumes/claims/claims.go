// Package claims is what is on record of pods' volumes that claims stand for: which claim and which volume each is, and where it lies on the host.
//
// A record is written before anything is made on the host, and goes after it was undone. So whoever finds a pod's directory knows of each claim that the pod may
// have in use, without asking an API server: to show it to containers, to measure it, to take it down. Records are not synced: what they tell of are mounts, which end with the
// machine, and paths that are others' to keep.
//
// A record is the file UID/claims/VOLUME in the directory of all pods: JSON, with the version 1.
package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// version is that of the format.
const version = 1

// Source is what a volume is made from, by the name of its field in the API.
type Source string

// The sources.
const (
	Local    Source = "local"
	HostPath Source = "hostPath"
	NFS      Source = "nfs"
)

// Record is a volume of a pod that a claim stands for.
type Record struct {
	Version int `json:"version"`
	// Namespace, Claim and ClaimUID are the claim's, Volume and VolumeUID those of the PersistentVolume. Of a share that the pod itself names there are none; then VolumeUID is what is mounted.
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	ClaimUID  types.UID `json:"claimUID"`
	Volume    string    `json:"volume"`
	VolumeUID types.UID `json:"volumeUID"`
	// Source is what it is made from, Path where that is on the host, for NFS SERVER:PATH.
	Source Source `json:"source"`
	Path   string `json:"path"`
	// Mounted: it is mounted in the pod's directory; else it is at Path itself.
	Mounted bool `json:"mounted,omitempty"`
	// Block: it is a block device, which containers get as such.
	Block bool `json:"block,omitempty"`
	// Pending: the pod is to have it, and it has not been made yet, so that no container of the pod has seen it. Records of before this was written have none, and count as made.
	Pending bool `json:"pending,omitempty"`
	// ReadOnly: no container may write to it.
	ReadOnly bool `json:"readOnly,omitempty"`
}

func dir(pod string) string { return filepath.Join(pod, "claims") }

func file(pod, volume string) string { return filepath.Join(dir(pod), volume) }

// Write puts a volume of the pod of that directory on record, in the place of what is there.
func Write(pod, volume string, r Record) error {
	r.Version = version
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir(pod), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// No volume has such a name, and one volume is written by one at a time.
	made := file(pod, volume+".new")
	if err := os.WriteFile(made, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(made, file(pod, volume))
}

// Read is what is on record of a volume; fs.ErrNotExist: nothing.
func Read(pod, volume string) (r Record, err error) {
	raw, err := os.ReadFile(file(pod, volume))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("the record of the claim in %s: %w", file(pod, volume), err)
	}
	if r.Version != version {
		return r, fmt.Errorf("the record of the claim in %s has the version %d, not %d", file(pod, volume), r.Version, version)
	}
	return r, nil
}

// All are the records of a pod, by the names of its volumes. One that cannot be read is left out.
func All(pod string) map[string]Record {
	entries, err := os.ReadDir(dir(pod))
	if err != nil {
		return nil
	}
	all := map[string]Record{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != "" {
			continue
		}
		if r, err := Read(pod, e.Name()); err == nil {
			all[e.Name()] = r
		}
	}
	return all
}

// Forget removes the records of a pod. Nothing there is no error.
func Forget(pod string) error { return os.RemoveAll(dir(pod)) }
