package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Phase is how far a volume's directory is.
//
//	Creating --the volume is in the API--> Ready --given back--> Deleting --> (gone)
//	    \---nobody wants it any more: undone--> (gone)
//	Filling --a claim has the volume--> Ready
//	    \---no claim will: abandoned--> (gone)
type Phase string

// The phases. A directory of the phase Creating may be undone, as long as nobody has written to it. One of the phase Filling has a copy of what is elsewhere, for a claim that is made
// last: until then nobody but this node has written to it.
const (
	Creating Phase = "creating"
	Filling  Phase = "filling"
	Ready    Phase = "ready"
	Deleting Phase = "deleting"
)

// Hold is what holds the size of a volume.
type Hold string

// The holds.
const (
	// Project is a project quota of the file system (ext4, xfs).
	Project Hold = "project"
	// Qgroup is the quota group of a subvolume (btrfs).
	Qgroup Hold = "qgroup"
	// File is an image: a file of the size, with a file system in it or as a block device.
	File Hold = "image"
	// Nothing: the volume may fill the disk.
	Nothing Hold = "none"
)

// Record is what is known of a volume's directory. It is stored in it as volume.json, and all that becomes of the directory follows from it.
type Record struct {
	// Version is that of the stored form: RecordVersion.
	Version int `json:"version"`
	// Name is that of the PersistentVolume, and of the directory.
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Node is the name of the node whose volume it is; empty, in records of earlier: of that which finds it.
	Node string `json:"node,omitempty"`
	// Claim is the one that the volume was made for.
	Claim Claimant `json:"claim"`
	// Class is the storage class that the claim named then.
	Class string `json:"class,omitempty"`
	// Size is how many bytes the volume may hold. It is written before the size is held, so that what a crash leaves is completed.
	Size int64 `json:"size"`
	Hold Hold  `json:"hold"`
	// Block: the volume is a block device, not a directory.
	Block bool `json:"block,omitempty"`
	// QuotaID is that of the project; 0: there is none.
	QuotaID uint32 `json:"quotaID,omitempty"`
}

// RecordVersion is the version of the records that this program writes, and the newest that it reads.
const RecordVersion = 1

// Claimant is a claim: by its UID, since a later one may have the name. Without one it is whoever is to have the name, and says that it wants this volume.
type Claimant struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String is the claim's name for people.
func (c Claimant) String() string { return c.Namespace + "/" + c.Name }

// Check says what is wrong with a record that a node has read from the directory called dir.
func (r *Record) Check(dir, node string) error {
	switch {
	case r.Version < 1 || r.Version > RecordVersion:
		return fmt.Errorf("it is of version %d, this Monopod knows those up to %d", r.Version, RecordVersion)
	case r.Name != dir:
		return fmt.Errorf("it is that of the volume %q", r.Name)
	case r.Node != "" && r.Node != node:
		return fmt.Errorf("it is that of the node %q, and this is %q", r.Node, node)
	case r.Phase != Creating && r.Phase != Filling && r.Phase != Ready && r.Phase != Deleting:
		return fmt.Errorf("its phase is %q, which this Monopod does not know", r.Phase)
	case r.Hold != Project && r.Hold != Qgroup && r.Hold != File && r.Hold != Nothing:
		return fmt.Errorf("its size is held by %q, which this Monopod does not know", r.Hold)
	}
	return nil
}
