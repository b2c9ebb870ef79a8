package cri

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
)

// crowded is a runtime that holds more than a message of gRPC may have.
type crowded struct {
	cri.UnimplementedRuntimeServiceServer
	pods int
}

func labelsOf(i int) map[string]string {
	pod := newPod()
	pod.UID = types.UID(fmt.Sprint("u", i))
	return podspec.Sandbox(podspec.SandboxInput{Pod: pod, LogDir: "/logs"}).Labels
}

func (r crowded) StreamPodSandboxes(_ *cri.StreamPodSandboxesRequest, s grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse]) error {
	for i := range r.pods {
		one := &cri.PodSandbox{Id: fmt.Sprint("s", i), Annotations: map[string]string{"note": strings.Repeat("a", 200)}, Labels: labelsOf(i)}
		if err := s.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: []*cri.PodSandbox{one}}); err != nil {
			return err
		}
	}
	return nil
}

func (r crowded) StreamContainers(_ *cri.StreamContainersRequest, s grpc.ServerStreamingServer[cri.StreamContainersResponse]) error {
	for i := range r.pods {
		one := &cri.Container{Id: fmt.Sprint("c", i), Labels: labelsOf(i), State: cri.ContainerState_CONTAINER_RUNNING}
		if err := s.Send(&cri.StreamContainersResponse{Containers: []*cri.Container{one}}); err != nil {
			return err
		}
	}
	return nil
}

func (r crowded) ListPodSandbox(_ context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return nil, status.Error(codes.ResourceExhausted, "message larger than max")
}

func (r crowded) ListContainers(_ context.Context, _ *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return nil, status.Error(codes.ResourceExhausted, "message larger than max")
}

// TestMoreThanAMessage: what a runtime holds is listed whatever its size; with a runtime without streamed lists (crifake, in the other tests) in one message.
func TestMoreThanAMessage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, crowded{pods: 300})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c, err := Dial(Config{Socket: socket, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pods, err := c.Pods(t.Context())
	if err != nil || len(pods) != 300 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	containers, err := c.Containers(t.Context())
	if err != nil || len(containers) != 300 {
		t.Errorf("%d containers, %v", len(containers), err)
	}
	list, err := c.list(t.Context())
	if err != nil || len(list) != 600 {
		t.Errorf("%d items, %v", len(list), err)
	}
}
