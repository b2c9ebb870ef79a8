package runtime

import (
	"log/slog"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/events"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stats"
)

// teller tells clients what happens to sandboxes and containers, and has what they use measured when that is to change.
type teller struct {
	rooms *rooms
	stats *stats.Collector
	log   *slog.Logger
	hub   events.Hub

	mu   sync.Mutex // held while an event is made
	last int64      // created_at of the last event
}

var _ listener = (*teller)(nil)

// publish tells an event, with what is known at its time: kubelets take the statuses in it for the pod's, unless they know of a
// later event. So created_at is when the event was made, not when what it tells of happened, which the statuses say; it only grows.
func (t *teller) publish(id string, sandboxID ids.SandboxID, kind cri.ContainerEventType) {
	t.tell(func() *cri.ContainerEventResponse {
		e := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, ContainersStatuses: t.rooms.containerStatuses(sandboxID)}
		if rec, err := t.rooms.sandboxes.Get(sandboxID); err == nil {
			e.PodSandboxStatus = sandboxStatus(&rec)
		}
		return e
	})
}

// tell makes an event, if anybody listens, and publishes it. One is made after the other, so that a later one never knows less.
func (t *teller) tell(event func() *cri.ContainerEventResponse) {
	if t.hub.Idle() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last+1, time.Now().UnixNano()) // before it is made: it knows all that happened until then
	e := event()
	e.CreatedAt = t.last
	t.hub.Publish(e)
}

// SandboxStarted implements sandbox.Listener: a sandbox is created and started at once.
func (t *teller) SandboxStarted(rec sandbox.Record) {
	t.publish(string(rec.ID), rec.ID, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	t.publish(string(rec.ID), rec.ID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// SandboxStopped implements sandbox.Listener.
func (t *teller) SandboxStopped(rec sandbox.Record) {
	t.publish(string(rec.ID), rec.ID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// SandboxRemoved implements sandbox.Listener.
func (t *teller) SandboxRemoved(rec sandbox.Record) {
	t.stats.Forget(string(rec.ID))
	t.stats.Sweep(t.known)
	t.tell(func() *cri.ContainerEventResponse {
		return &cri.ContainerEventResponse{ContainerId: string(rec.ID), ContainerEventType: cri.ContainerEventType_CONTAINER_DELETED_EVENT, PodSandboxStatus: sandboxStatus(&rec)}
	})
}

// ContainerCreated implements container.Listener.
func (t *teller) ContainerCreated(rec container.Record) {
	t.publish(string(rec.ID), rec.SandboxID, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
}

// ContainerStarted implements container.Listener.
func (t *teller) ContainerStarted(rec container.Record) {
	t.stats.Measure(string(rec.ID), t.rooms.folders.Written(rec.ID))
	t.publish(string(rec.ID), rec.SandboxID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// ContainerStopped implements container.Listener.
func (t *teller) ContainerStopped(rec container.Record) {
	t.log.Info("a container has ended", "container", rec.ID, "name", rec.Config().GetMetadata().GetName(), "code", rec.Exit.Code, "reason", rec.Reason())
	t.stats.Measure(string(rec.ID), t.rooms.folders.Written(rec.ID)) // for the last time
	t.publish(string(rec.ID), rec.SandboxID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// ContainerRemoved implements container.Listener.
func (t *teller) ContainerRemoved(rec container.Record) {
	t.stats.Forget(string(rec.ID))
	t.publish(string(rec.ID), rec.SandboxID, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// known says whether there is a sandbox or a container with the id.
func (t *teller) known(id string) bool {
	return t.rooms.sandboxes.Has(ids.SandboxID(id)) || t.rooms.containers.Has(ids.ContainerID(id))
}
