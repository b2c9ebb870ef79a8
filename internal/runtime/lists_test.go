package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// drain reads a stream to its end, and returns the messages.
func drain[M any](t testing.TB, stream grpc.ServerStreamingClient[M], err error) (all []*M) {
	t.Helper()
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			all = append(all, m)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return all
}

// sameItems fails the test unless what was streamed is what was listed, each item once.
func sameItems[T proto.Message](t testing.TB, what string, streamed, listed []T) {
	t.Helper()
	if !slices.EqualFunc(streamed, listed, func(a, b T) bool { return proto.Equal(a, b) }) {
		t.Errorf("%s: %d items are streamed, %d listed:\n%v\n%v", what, len(streamed), len(listed), streamed, listed)
	}
}

func (n *node) streamSandboxes(f *cri.PodSandboxFilter) (items []*cri.PodSandbox, messages int) {
	n.Helper()
	stream, err := n.rt.StreamPodSandboxes(n.ctx, &cri.StreamPodSandboxesRequest{Filter: f})
	all := drain(n, stream, err)
	for _, m := range all {
		items = append(items, m.GetPodSandboxes()...)
	}
	return items, len(all)
}

func (n *node) streamContainers(f *cri.ContainerFilter) (items []*cri.Container, messages int) {
	n.Helper()
	stream, err := n.rt.StreamContainers(n.ctx, &cri.StreamContainersRequest{Filter: f})
	all := drain(n, stream, err)
	for _, m := range all {
		items = append(items, m.GetContainers()...)
	}
	return items, len(all)
}

// The streamed lists tell what the others do, with the same filters, in as many messages as the items' size takes.
func TestStreamedLists(t *testing.T) {
	n := newNode(t)
	if items, messages := n.streamSandboxes(nil); len(items) != 0 || messages != 0 {
		t.Errorf("without sandboxes there are %d items in %d messages", len(items), messages)
	}
	long := strings.Repeat("x", 150<<10) // twice in each item
	var sandboxes, containers []string
	for i := range 5 {
		cfg := n.sandboxConfig(fmt.Sprint("pod", i))
		cfg.Labels = map[string]string{"parity": fmt.Sprint(i % 2), "long": long}
		cfg.Annotations = map[string]string{"long": long}
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		n.check(err)
		sandboxes = append(sandboxes, resp.GetPodSandboxId())
		c := shell("c", sleeper)
		c.Annotations, c.Labels = cfg.Annotations, cfg.Labels
		containers = append(containers, n.create(resp.GetPodSandboxId(), c))
	}
	_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandboxes[4]})
	n.check(err)
	n.check(n.tryStart(containers[0]))

	for name, f := range map[string]*cri.PodSandboxFilter{
		"all": nil, "a prefix": {Id: sandboxes[1][:20]}, "nobody": {Id: "nobody"}, "labels": {LabelSelector: map[string]string{"parity": "1"}},
		"ready":       {State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}},
		"all of them": {Id: sandboxes[4], State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_NOTREADY}, LabelSelector: map[string]string{"parity": "0"}},
	} {
		listed, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{Filter: f})
		n.check(err)
		streamed, messages := n.streamSandboxes(f)
		sameItems(t, "sandboxes, "+name, streamed, listed.GetItems())
		if want := (len(streamed) + 2) / 3; messages != want { // three fit into a message
			t.Errorf("%d sandboxes come in %d messages, want %d", len(streamed), messages, want)
		}
	}
	for name, f := range map[string]*cri.ContainerFilter{
		"all": nil, "a prefix": {Id: containers[1][:20]}, "nobody": {PodSandboxId: "nobody"}, "labels": {LabelSelector: map[string]string{"parity": "1"}},
		"running":   {State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}},
		"a sandbox": {PodSandboxId: sandboxes[2], LabelSelector: map[string]string{"parity": "0"}},
	} {
		listed, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{Filter: f})
		n.check(err)
		streamed, messages := n.streamContainers(f)
		sameItems(t, "containers, "+name, streamed, listed.GetContainers())
		if want := (len(streamed) + 2) / 3; messages != want {
			t.Errorf("%d containers come in %d messages, want %d", len(streamed), messages, want)
		}
	}
	for _, f := range []*cri.ImageFilter{nil, {Image: &cri.ImageSpec{Image: busybox}}, {Image: &cri.ImageSpec{Image: "nobody:latest"}}} {
		listed, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: f})
		n.check(err)
		stream, err := n.img.StreamImages(n.ctx, &cri.StreamImagesRequest{Filter: f})
		var streamed []*cri.Image
		for _, m := range drain(n, stream, err) {
			streamed = append(streamed, m.GetImages()...)
		}
		sameItems(t, "images", streamed, listed.GetImages())
	}

	// A list is of one moment: what happens while it is read does not change it. One that is left ends.
	ctx, cancel := context.WithCancel(n.ctx)
	stream, err := n.rt.StreamContainers(ctx, &cri.StreamContainersRequest{})
	n.check(err)
	first, err := stream.Recv()
	n.check(err)
	n.remove(containers[4])
	rest := drain(n, stream, nil)
	if len(rest) != 1 || len(first.GetContainers())+len(rest[0].GetContainers()) != 5 {
		t.Errorf("a list that was begun with five containers goes on as %d and %d messages", len(first.GetContainers()), len(rest))
	}
	stream, err = n.rt.StreamContainers(ctx, &cri.StreamContainersRequest{})
	n.check(err)
	cancel()
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) { // else all of it was there before the end
		wantCode(t, err, codes.Canceled)
	}
}
