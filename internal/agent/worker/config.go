package worker

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/probes"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/kit/ids"
)

// Config is what all workers share.
type Config struct {
	Runtime Runtime
	Actions Actions
	Devices Devices
	Ledger  Ledger
	Files   Files
	Objects Objects
	// Renewed are what volumes show and what ends: tokens, certificates.
	Renewed  []Renewed
	Status   Status
	Probes   Probes
	Shutdown Shutdown
	// Judges are asked about pods that the node has taken, in this order.
	Judges []Judge
	// Used is told of images that were in use until now.
	Used func(image string)
	// Acted is told of each action that has ended, as it may have changed what the runtime holds of the pod; nil: nobody is.
	Acted func(uid types.UID)
	// HostIPs are the node's addresses.
	HostIPs []string
	Log     *slog.Logger
}

// Runtime is asked for what it holds of pods.
type Runtime interface {
	// View makes a view of a pod, of one goroutine only. message reads the termination message of a container that has ended.
	View(uid types.UID, message func(cri.End) string) *cri.View
	// Identity is who the runtime is, as it told last; Generation is another one whenever another runtime may answer.
	Identity() cri.Identity
	Generation() cri.Generation
}

// Actions carries actions out, each in a goroutine of its own, and tells of pods.
type Actions interface {
	// Do carries an action out, and ends soon after ctx. An error that says more than what went wrong is an *act.Failed, or an *act.Never.
	Do(ctx context.Context, pod *v1.Pod, a plan.Action) error
	// Event tells of the pod, or of one of its containers. It does not wait.
	Event(pod *v1.Pod, containerName, kind, reason, message string)
}

// Devices tells what the containers of pods have of devices.
type Devices interface {
	// GrantsOf tells what the pod's containers have, and how it is; none: they have nothing.
	GrantsOf(podUID string) []devices.GrantRecord
}

// Ledger knows what the node's pods have of it.
type Ledger interface {
	// Take gives a pod what it asks for of the node, or says why not. It is idempotent. A pod that has begun to run has what it asks for.
	Take(pod *v1.Pod, begun bool) *admit.Refusal
	// Admitted is the pod with what it was given in the place of what it asks for by now: the pod itself where that is the same, or nothing was given yet.
	Admitted(pod *v1.Pod) *v1.Pod
	// Release gives back what a pod has. It is idempotent.
	Release(uid types.UID)
}

// Files are what pods have in their directories, as far as a worker looks at it itself.
type Files interface {
	// MessagePath is the path of a container's termination message.
	MessagePath(uid types.UID, containerName string, attempt uint32) string
	// Following are the names of the pod's volumes that follow what they show.
	Following(pod *v1.Pod) []string
	// KeepVerdict keeps what was decided about a pod's end, durably; Verdict is what was kept, nil: nothing.
	KeepVerdict(uid types.UID, raw []byte) error
	Verdict(uid types.UID) ([]byte, error)
}

// Objects are those that pods refer to.
type Objects interface {
	// Hold has holder told of each change of these objects, and of no others any more. changed does not block.
	Hold(holder string, names []objects.Name, changed func())
	// Release has it told of nothing.
	Release(holder string)
}

// Renewed are things of one kind that volumes show, and that are renewed before they end.
type Renewed interface {
	// Due is when the first of the pod's wants to be renewed; zero: none does.
	Due(pod *v1.Pod) time.Time
	// Forget drops the pod's.
	Forget(uid types.UID)
}

// Status takes the pods' statuses to whoever wants to know them.
type Status interface {
	// Set makes st the pod's status. pod is the newest version of the object that the caller knows. passing: what is new in st is soon over, so that it may
	// wait a moment for the next.
	Set(pod *v1.Pod, st v1.PodStatus, passing bool)
	// Forget drops the pod.
	Forget(uid types.UID)
}

// Probes probe the pods' containers.
type Probes interface {
	// Set has these containers of a pod be probed, and no others of it. changed is called when Facts answers otherwise; it does not block.
	Set(uid types.UID, targets []probes.Target, changed func())
	// Facts are what is known of them, by the container's ID.
	Facts(uid types.UID) map[ids.ContainerID]probes.Facts
	Forget(uid types.UID)
}

// Shutdown says what the node's shutdown does to a pod; nil: nothing ends pods with the node.
type Shutdown interface {
	// Judge says how a pod ends by it; nil: it goes on. begun: an agent had taken it before.
	Judge(pod *v1.Pod, begun bool) *plan.Verdict
	// StopBy is by when a pod that is deleted shall have ended, which was to have ended by then.
	StopBy(pod *v1.Pod, by time.Time) time.Time
	// Rested is told that a pod rests.
	Rested()
}

// Judge ends pods for what they take of the node, such as its disk.
type Judge interface {
	// Judge says how a pod ends by that; nil: it goes on. poke is called when the answer has changed, until Forget.
	Judge(pod *v1.Pod, poke func()) *plan.Verdict
	// Forget drops what is known of a pod that ends. It is idempotent.
	Forget(uid types.UID)
}
