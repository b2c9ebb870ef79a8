package fsck

import (
	"cmp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Damaged: something that should be there is missing or wrong.
	Damaged Severity = "damaged"
	// Leftover: something is there that belongs to nobody.
	Leftover Severity = "leftover"
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	// Kind is what the object is: image, blob, layer, container, ...; Object is which.
	Kind   string `json:"kind"`
	Object string `json:"object"`
	// Problem says what is wrong with it, Repair what a repair does about it, or who else can do something.
	Problem string `json:"problem"`
	Repair  string `json:"repair"`
	// Repairable: a repair does something.
	Repairable bool `json:"repairable"`

	// Fix is what the repair does.
	Fix Fix `json:"-"`
}

// Action is a way to repair.
type Action int

const (
	// Nothing can be done by a repair.
	Nothing Action = iota
	// Open the image store: it removes such leftovers by itself, and collects what nobody holds.
	Open
	// DropName takes the image's name Fix.Target away.
	DropName
	// DropLease takes the lease Fix.Target away.
	DropLease
	// RemovePath removes the file or directory Fix.Target.
	RemovePath
	// RemoveFolder removes the folder Fix.Target of a container or a sandbox, if nothing is mounted in it.
	RemoveFolder
	// Pin holds the image Fix.Target for the container Fix.Table.
	Pin
	// DropRecord deletes the record Fix.Target of the table Fix.Table.
	DropRecord
)

// Fix is one act of a repair.
type Fix struct {
	Action        Action
	Table, Target string
}

// Damage is a finding of something that is not as it should be. It is repairable when fix is an act.
func Damage(kind, object, problem, repair string, fix Fix) Finding {
	return Finding{Severity: Damaged, Kind: kind, Object: object, Problem: problem, Repair: repair, Repairable: fix.Action != Nothing, Fix: fix}
}

// Left is a finding of something that belongs to nobody.
func Left(kind, object, problem, repair string, fix Fix) Finding {
	f := Damage(kind, object, problem, repair, fix)
	f.Severity = Leftover
	return f
}

// Sort puts the damaged first, and what is alike together.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object))
	})
}

// Said is an error's text without its class DataLoss, which a finding tells anyway.
func Said(err error) string { return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrDataLoss.Error()) }
