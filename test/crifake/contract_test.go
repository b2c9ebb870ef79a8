package crifake

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/contract"
)

// TestContract: what the agent's tests rely on is what a real runtime does; internal/runtime runs the same suite.
func TestContract(t *testing.T) {
	const image = "localhost/there:latest"
	r := Start(t, filepath.Join(t.TempDir(), "cri.sock"))
	r.HaveImage(image)
	r.Deaf("deaf")
	conn, err := grpc.NewClient("unix://"+r.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	contract.RunRuntime(t, contract.Runtime{
		Runtime: cri.NewRuntimeServiceClient(conn), Images: cri.NewImageServiceClient(conn), Image: image,
		Sandbox: func(name string) *cri.PodSandboxConfig {
			return &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, LogDirectory: "/logs/" + name}
		},
		Container: func(name string, _ bool) *cri.ContainerConfig {
			return &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: image}, LogPath: name + ".log"}
		},
		Exit:  func(_ *testing.T, id string, code int32) { r.Exit(id, code) },
		Hears: func(*testing.T, string) {},
	})
}
