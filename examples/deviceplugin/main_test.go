package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet takes registrations.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	registered chan *v1beta1.RegisterRequest
}

func (k kubelet) Register(_ context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.registered <- req
	return &v1beta1.Empty{}, nil
}

// TestShellChangesHealth runs the command as its README says, against a registration socket.
func TestShellChangesHealth(t *testing.T) {
	dir, err := os.MkdirTemp("", "dp") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	k := kubelet{registered: make(chan *v1beta1.RegisterRequest, 10)}
	v1beta1.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	control := filepath.Join(dir, "control")
	if err := os.Mkdir(control, 0o700); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	runCtx, stop := context.WithCancel(ctx)
	go func() {
		ended <- run(runCtx, []string{"--resource", "example.com/x", "--devices", "2", "--dir", dir, "--control", control, "--fail-allocate", "on fire"})
	}()
	var req *v1beta1.RegisterRequest
	select {
	case req = <-k.registered:
	case err := <-ended:
		t.Fatal(err)
	}
	if req.GetResourceName() != "example.com/x" || req.GetVersion() != "v1beta1" {
		t.Errorf("registered %v", req)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, req.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := v1beta1.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, want map[string]string) {
		t.Helper()
		for {
			msg, err := stream.Recv()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			same := len(msg.GetDevices()) == len(want)
			for _, d := range msg.GetDevices() {
				same = same && want[d.GetID()] == d.GetHealth()
			}
			if same {
				return
			}
		}
	}
	await("at first", map[string]string{"dev-0": "Healthy", "dev-1": "Healthy"})
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(control, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dev-0", "Unhealthy\n")
	await("unhealthy", map[string]string{"dev-0": "Unhealthy", "dev-1": "Healthy"})
	write("dev-1", "")
	write("dev-9", "Healthy\n")
	await("one gone, one new", map[string]string{"dev-0": "Unhealthy", "dev-9": "Healthy"})
	if err := os.Remove(filepath.Join(control, "dev-0")); err != nil {
		t.Fatal(err)
	}
	await("as at first", map[string]string{"dev-0": "Healthy", "dev-9": "Healthy"})
	if _, err := client.Allocate(ctx, &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"dev-0"}}}}); err == nil {
		t.Error("Allocate did not fail")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
