package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/test/clitest"
)

func fullStatus() protocol.Status {
	return protocol.Status{
		Node: "edge-1", PID: 4711, Started: time.Unix(1_800_000_000, 0).UTC(),
		Versions: protocol.Versions{Monopod: "0.9.0", Executor: "0.8.1", Kubernetes: "v1.37.2+monopod", Kernel: "6.1.0-30-amd64"},
		Roles: []protocol.Role{{Name: "apiserver", State: protocol.Ready, Address: "https://127.0.0.1:6443"}, {Name: "runtime", State: protocol.Ready, Address: "/run/monopod/cri.sock"},
			{Name: "devices", State: protocol.Ready}, {Name: "agent", State: protocol.Starting}},
		Pods: &protocol.Pods{Running: 12, Pending: 1, Succeeded: 3},
		Devices: &protocol.Devices{Counts: protocol.Counts{Total: 6, Healthy: 5, Granted: 3, Missing: 1}, Resources: []protocol.Resource{
			{Name: "example.com/widget", Counts: protocol.Counts{Total: 2, Healthy: 2, Granted: 1, Missing: 1}}, {Name: "nvidia.com/gpu", Counts: protocol.Counts{Total: 4, Healthy: 3, Granted: 2}}}},
		Images:   &protocol.Images{Count: 14, Bytes: 5_300_000_000},
		Storage:  &protocol.Storage{Directory: "/var/lib/monopod/volumes", SizesHeldBy: "qgroup"},
		Disks:    []protocol.Disk{{Name: "data", Path: "/var/lib/monopod", Size: 500e9, Used: 120e9, Free: 380e9}, {Name: "run", Path: "/run/monopod", Size: 800e6, Used: 2e6, Free: 798e6}},
		Problems: []protocol.Problem{{About: "devices", Message: "nvidia.com/gpu=3, which default/train/main has, is Unhealthy: /dev/nvidia3 does not exist"}},
		NotAsked: []protocol.Unknown{},
	}
}

func TestStatusScreen(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).Add(3 * time.Hour)
	clitest.Golden(t, "status", statusScreen(fullStatus(), now))
	clitest.Golden(t, "status-of-a-runtime", statusScreen(protocol.Status{
		Node: "edge-1", PID: 4711, Started: now, Versions: protocol.Versions{Monopod: "0.9.0", Kernel: "6.1.0"},
		Roles: []protocol.Role{{Name: "runtime", State: protocol.Ready, Address: "/run/monopod/cri.sock"}}, Images: &protocol.Images{},
		NotAsked: []protocol.Unknown{{What: "pods", Why: "the role agent does not run in this process"}, {What: "devices", Why: "the role devices does not run in this process"}},
	}, now))
}

func TestStatusCommand(t *testing.T) {
	r := clitest.NewAdminRig(t, fullStatus())
	out, _, err := command(t.Context(), "status", "--admin-socket", r.Socket)
	if err != nil || !strings.HasPrefix(out.String(), "NODE        edge-1, process 4711, started ") {
		t.Errorf("%v, %s", err, out)
	}
	out, _, err = command(t.Context(), "status", "--admin-socket", r.Socket, "-o", "json")
	var got protocol.Status
	if err != nil || json.Unmarshal([]byte(out.String()), &got) != nil || !reflect.DeepEqual(got, fullStatus()) {
		t.Errorf("%v, %s", err, out)
	}
	if out, _, err = command(t.Context(), "status", "--admin-socket", r.Socket, "-o", "yaml"); err != nil || !strings.Contains(out.String(), "kernel: 6.1.0-30-amd64") {
		t.Errorf("%v, %s", err, out)
	}
}

func TestStatusOfNothing(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.sock")
	_, _, err := command(t.Context(), "status", "--admin-socket", absent)
	if u := (*cli.UsageError)(nil); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &u) || !strings.Contains(err.Error(), "no node runs at "+absent+": start 'monopod up', or name the socket") {
		t.Error(err)
	}
	for _, args := range [][]string{{"-o", "wide"}, {"x"}} {
		_, _, err := command(t.Context(), append([]string{"status", "--admin-socket", absent}, args...)...)
		if u := (*cli.UsageError)(nil); !errors.As(err, &u) {
			t.Errorf("%q is taken: %v", args, err)
		}
	}
}

// TestStatusOfRolesApart: processes that run the roles of one node beside each other are shown as that node.
func TestStatusOfRolesApart(t *testing.T) {
	disks := []protocol.Disk{{Name: "data", Path: "/var/lib/monopod", Size: 1, Used: 1}}
	agent := protocol.Status{Node: "edge-1", PID: 1, Versions: protocol.Versions{Monopod: "0.9.0", Kernel: "6.1.0"}, Disks: disks,
		Roles: []protocol.Role{{Name: "devices"}, {Name: "agent"}}, Pods: &protocol.Pods{Running: 2}, Devices: &protocol.Devices{},
		Problems: []protocol.Problem{{About: "disk", Message: "full"}}, NotAsked: []protocol.Unknown{{What: "images", Why: "not here"}}}
	runtime := protocol.Status{Node: "edge-1", PID: 3, Versions: protocol.Versions{Monopod: "0.9.0", Kernel: "6.1.0"}, Disks: disks,
		Roles: []protocol.Role{{Name: "runtime"}}, Images: &protocol.Images{Count: 3}, Problems: []protocol.Problem{{About: "disk", Message: "full"}, {About: "runtime", Message: "no network"}},
		NotAsked: []protocol.Unknown{{What: "pods", Why: "not here"}, {What: "devices", Why: "not here"}}}
	api := protocol.Status{Node: "edge-1", PID: 2, Versions: protocol.Versions{Monopod: "0.9.0", Kubernetes: "v1.37.2", Kernel: "6.1.0"}, Disks: disks,
		Roles: []protocol.Role{{Name: "apiserver"}}, Pods: &protocol.Pods{Running: 7},
		NotAsked: []protocol.Unknown{{What: "devices", Why: "not here"}, {What: "images", Why: "not here"}}}

	r := clitest.NewAdminRig(t, agent)
	serve := func(name string, s protocol.Status) {
		srv, err := admin.New(admin.Config{Socket: filepath.Join(r.Dir, name), Status: func(context.Context) protocol.Status { return s }})
		if err != nil {
			t.Fatal(err)
		}
		clitest.Background(t, name, srv.Run)
		<-srv.Ready()
	}
	ask := func() (got protocol.Status) {
		t.Helper()
		out, _, err := command(t.Context(), "status", "--admin-socket", r.Socket, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out.String()), &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(); len(got.Roles) != 2 || len(got.NotAsked) != 1 {
		t.Errorf("the agent alone: %+v", got)
	}
	serve(protocol.RuntimeSocketName, runtime)
	serve(protocol.APIServerSocketName, api)
	want := protocol.Status{Node: "edge-1", PID: 1, Versions: api.Versions, Disks: disks,
		Roles: []protocol.Role{{Name: "devices"}, {Name: "agent"}, {Name: "apiserver"}, {Name: "runtime"}}, Pods: &protocol.Pods{Running: 2}, Devices: &protocol.Devices{},
		Images: runtime.Images, Problems: runtime.Problems, NotAsked: []protocol.Unknown{}}
	if got := ask(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Without the agent the others are still the node.
	r.Stop()
	if got := ask(); len(got.Roles) != 2 || got.Pods.Running != 7 || len(got.NotAsked) != 1 || got.NotAsked[0].What != "devices" {
		t.Errorf("without the agent: %+v", got)
	}
}
