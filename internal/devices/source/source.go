// Package source is what the device manager asks of those who know devices: CDI specs (package cdi), device plugins (package plugin).
//
// Every source has devices in resources of its own, hands out none of them by itself, and tells of changes. Who has what is the manager's.
package source

import (
	"context"
	"fmt"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
)

// Source is where devices come from. All its methods, and those of its abilities, are safe for concurrent use, and keep nothing of what they are given: slices are
// the caller's, and so is what is returned, but for snapshots, which are nobody's to change. What is said here test/contract.RunDeviceSource tries with each source.
type Source interface {
	// Name is what records and lists call it, such as "cdi". It is the same for as long as records are kept.
	Name() string
	// Snapshot returns the devices as they are known now, at once, from the moment the source exists. The result is never changed, and is not to be. The pointer is the
	// same as long as nothing has changed.
	Snapshot() *inventory.Snapshot
	// Run keeps the snapshot up with the world until ctx ends, and then returns nil: that the world cannot be looked at is a problem of the snapshot. It calls changed
	// after each new snapshot, which is the one that Snapshot returns from then on, and when a Check or Prepare that failed may succeed now; never twice at a time, and
	// not after it has returned. It is called once.
	Run(ctx context.Context, changed func()) error
	// Check says whether a device of the snapshot can be used right now. inUse: by the container that has it already, for which less may do.
	// The error says what is wrong with the device, in words for whoever can mend it; of a name that the source does not know it is an fs.ErrNotExist.
	Check(resource, name string, inUse bool) error
	// Prepare makes devices of one resource ready for a container, and tells what the container is to be given. It may be called again
	// for the same container and devices: after a reboot, and when the answer of the last call was lost. Then it answers the same, as long as the devices are.
	//
	// Errors: an *answer.RefusedError, with the resource, when the container is never to have these devices; any other error means that it may be tried again. A
	// call that its caller has given up is not refused.
	Prepare(ctx context.Context, c Container, resource string, names []string) (answer.Answer, error)
}

// Adviser is a Source that has a preference among the devices of a resource.
type Adviser interface {
	// Prefer returns the names, of those that are available, that should be granted: n, with all of must among them. It is advice: nil means
	// none, as it does of a resource that the source does not know or cannot ask about; and what does not fit is not followed.
	Prefer(ctx context.Context, resource string, available, must []string, n int) []string
}

// Starter is a Source that is told before each start of a container, where it wants to be.
type Starter interface {
	// StartRequired says whether BeforeStart is to be called for the containers of a resource, and whether that is known now. It asks nobody.
	StartRequired(resource string) (required, known bool)
	// BeforeStart returns when the container may be started with the devices that it was granted. An errdefs.ErrUnavailable says that the
	// source cannot be asked now; any other error is its refusal. Where it is not required it does nothing.
	BeforeStart(ctx context.Context, c Container, resource string, names []string) error
}

// Lasting is a Source whose answers hold for as long as the machine runs: a container is started again with what is on record, whatever
// has become of its devices or of the source meanwhile.
type Lasting interface{ AnswersLast() }

// Identifier is a Source that knows which hardware is behind an answer, whoever has given it.
type Identifier interface {
	// Identify returns the host's device nodes that are the devices' own, sorted, each once; of an answer that gives none, none.
	Identify(a answer.Answer) []string
}

// Effectless is a Source whose Prepare changes nothing and asks nobody: what it has said need not be on record before it is asked.
type Effectless interface{ PreparesWithoutEffect() }

// Container names a container.
type Container struct{ PodUID, PodNamespace, PodName, Name string }

// String names the container and its pod.
func (c Container) String() string {
	return fmt.Sprintf("container %q of pod %s/%s (%s)", c.Name, c.PodNamespace, c.PodName, c.PodUID)
}
