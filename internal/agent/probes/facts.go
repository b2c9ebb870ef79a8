package probes

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/probes/judge"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

// Known is what is known of something: NotKnown, Yes or No.
type Known = judge.Known

// What is known of a container's being started or ready.
const (
	NotKnown = judge.NotKnown
	Yes      = judge.Yes
	No       = judge.No
)

// Facts are what is known of a container by its probes.
type Facts struct {
	// Started is Yes from when the startup probe has passed, and always without one; No before.
	Started Known
	// Ready is No before Started, then what the readiness probe says, NotKnown until it has answered as often as a threshold asks for: what the API
	// said of this very container before a restart of the agent still holds then, and a new one is not ready. Without that probe it is what
	// Started is.
	Ready Known
	// Failed is why the container is to be killed; nil: it is not. It holds until the container is replaced, or terminating.
	Failed *Failure
}

// Failure says that a container is to be killed because a probe has failed.
type Failure struct {
	// Kind is "Startup" or "Liveness".
	Kind string
	// Message tells it in a kubelet's words, as the event Killing does.
	Message string
	// Grace is the probe's own terminationGracePeriodSeconds; nil: the pod's holds. It does not hold for a pod that is being deleted.
	Grace *time.Duration
}

// Facts are those of the containers of a pod, by their IDs: of the targets that were set last, with or without probes.
func (m *Manager) Facts(uid types.UID) map[ids.ContainerID]Facts {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	all := make(map[ids.ContainerID]Facts, len(p.containers))
	for id, c := range p.containers {
		f := c.judge.Facts()
		all[id] = Facts{Started: f.Started, Ready: f.Ready, Failed: c.failure(f.Failed)}
	}
	return all
}

var failed = map[judge.Kind]string{judge.Startup: "failed startup probe", judge.Liveness: "failed liveness probe"}

func (c *container) failure(by judge.Kind) *Failure {
	if by == judge.Kinds {
		return nil
	}
	f := &Failure{Kind: by.String(), Message: message(c.target.Pod, c.target.Container, failed[by])}
	if s := c.probes[by].spec.TerminationGracePeriodSeconds; s != nil {
		grace := pods.Seconds(*s)
		f.Grace = &grace
	}
	return f
}

// message is why a container is killed. A kubelet says of an app's container alone that it will be restarted, if the policies of pod and container are
// so; rules for exit codes do not matter to it, because there is no exit code yet.
func message(pod *v1.Pod, container *v1.Container, why string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container.Name {
			return fmt.Sprintf("Init container %s %s", container.Name, why)
		}
	}
	restarts := pod.Spec.RestartPolicy != v1.RestartPolicyNever
	if container.RestartPolicy != nil {
		restarts = *container.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	if restarts {
		why += ", will be restarted"
	}
	return fmt.Sprintf("Container %s %s", container.Name, why)
}

// sameProbes tells whether two versions of a container ask the same.
func sameProbes(a, b *v1.Container) bool {
	return a == b || sameProbe(a.StartupProbe, b.StartupProbe) && sameProbe(a.LivenessProbe, b.LivenessProbe) && sameProbe(a.ReadinessProbe, b.ReadinessProbe)
}

func sameProbe(a, b *v1.Probe) bool { return a == b || equality.Semantic.DeepEqual(a, b) }
