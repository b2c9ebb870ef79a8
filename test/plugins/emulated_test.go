//go:build plugins

package plugins

import (
	"context"
	"errors"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/plugins/plugin"
)

// TestEmulated: our own plugin is tried as those of others are.
func TestEmulated(t *testing.T) {
	n := startNode(t)
	tryOut(t, n, plugin.Emulated(t, place(n)))
}

// TestUnresponsiveAllocate: a plugin that does not answer stops nobody but the pod that asks for its devices. Under a kubelet it stops all pods (test/kubelet).
func TestUnresponsiveAllocate(t *testing.T) {
	n := startNode(t)
	s := plugin.Emulated(t, place(n))
	s.Start()
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	p := emulator.New(emulator.Config{Dir: n.PluginDir(), Endpoint: "stuck.sock", Resource: "example.com/stuck", Devices: emulator.Devices(1, 0),
		Hooks: emulator.Hooks{Allocate: func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
			asked <- struct{}{}
			<-answer
			return nil, errors.New("at last")
		}}})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	awaitResource(t, n, "example.com/stuck", 1, 1)
	apply(n, "stuck", "example.com/stuck", 1, "true")
	<-asked
	awaitResource(t, n, s.Resource, s.Devices, s.Devices)
	apply(n, "other", s.Resource, 1, s.Use)
	awaitUsed(t, n, "other")
	close(answer)
}
