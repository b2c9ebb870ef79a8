//go:build cgo

package table

import (
	"slices"
	"testing"

	"monopod.dev/monopod/internal/executor/protocol"
)

// A slow subscriber gets the newest state of each container, and not all of them.
func TestHubCoalesces(t *testing.T) {
	h := newHub()
	gate, got := make(chan struct{}), make(chan string, 100)
	ctx := t.Context()
	go h.subscribe(ctx, func() []protocol.ContainerState { return []protocol.ContainerState{{ID: "a", Phase: protocol.Created}} },
		func(ev protocol.Event) error {
			switch {
			case ev.Synced:
				got <- "synced"
				<-gate
			case ev.Deleted != "":
				got <- "deleted " + string(ev.Deleted)
			default:
				got <- string(ev.Container.ID) + " " + string(ev.Container.Phase)
			}
			return nil
		})
	first := []string{<-got, <-got}
	for _, phase := range []protocol.Phase{protocol.Created, protocol.Running, protocol.Exited} {
		h.publish("a", protocol.Event{Container: &protocol.ContainerState{ID: "a", Phase: phase}})
		h.publish("b", protocol.Event{Container: &protocol.ContainerState{ID: "b", Phase: phase}})
	}
	h.publish("b", protocol.Event{Deleted: "b"})
	close(gate)
	all := append(first, <-got, <-got)
	if want := []string{"a Created", "synced", "a Exited", "deleted b"}; !slices.Equal(all, want) {
		t.Errorf("events %q, want %q", all, want)
	}
}
