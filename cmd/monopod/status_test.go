package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/admin/protocol"
)

func fullStatus() protocol.Status {
	return protocol.Status{
		Node: "edge-1", PID: 4711, Started: time.Unix(1_800_000_000, 0).UTC(),
		Versions: protocol.Versions{Monopod: "0.9.0", Kubernetes: "v1.37.2+monopod", Kernel: "6.1.0-30-amd64"},
		Roles: []protocol.Role{{Name: "apiserver", State: protocol.Ready, Address: "https://127.0.0.1:6443"}, {Name: "runtime", State: protocol.Ready, Address: "/run/monopod/cri.sock"},
			{Name: "devices", State: protocol.Ready}, {Name: "agent", State: protocol.Starting}},
		Pods: &protocol.Pods{Running: 12, Pending: 1, Succeeded: 3},
		Devices: &protocol.Devices{Counts: protocol.Counts{Total: 6, Healthy: 5, Granted: 3, Missing: 1}, Resources: []protocol.Resource{
			{Name: "example.com/widget", Counts: protocol.Counts{Total: 2, Healthy: 2, Granted: 1, Missing: 1}}, {Name: "nvidia.com/gpu", Counts: protocol.Counts{Total: 4, Healthy: 3, Granted: 2}}}},
		Images:   &protocol.Images{Count: 14, Bytes: 5_300_000_000},
		Disks:    []protocol.Disk{{Name: "data", Path: "/var/lib/monopod", Size: 500e9, Used: 120e9, Free: 380e9}, {Name: "run", Path: "/run/monopod", Size: 800e6, Used: 2e6, Free: 798e6}},
		Problems: []protocol.Problem{{About: "devices", Message: "nvidia.com/gpu=3, which default/train/main has, is Unhealthy: /dev/nvidia3 does not exist"}},
		NotAsked: []protocol.Unknown{},
	}
}

func TestStatusScreen(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).Add(3 * time.Hour)
	golden(t, "status", statusScreen(fullStatus(), now))
	golden(t, "status-of-a-runtime", statusScreen(protocol.Status{
		Node: "edge-1", PID: 4711, Started: now, Versions: protocol.Versions{Monopod: "0.9.0", Kernel: "6.1.0"},
		Roles: []protocol.Role{{Name: "runtime", State: protocol.Ready, Address: "/run/monopod/cri.sock"}}, Images: &protocol.Images{},
		NotAsked: []protocol.Unknown{{What: "pods", Why: "the role agent does not run in this process"}, {What: "devices", Why: "the role devices does not run in this process"}},
	}, now))
}

func TestStatusCommand(t *testing.T) {
	r := newAdminRig(t, fullStatus())
	out, _, err := command(t.Context(), "status", "--admin-socket", r.socket)
	if err != nil || !strings.HasPrefix(out.String(), "NODE        edge-1, process 4711, started ") {
		t.Errorf("%v, %s", err, out)
	}
	out, _, err = command(t.Context(), "status", "--admin-socket", r.socket, "-o", "json")
	var got protocol.Status
	if err != nil || json.Unmarshal([]byte(out.String()), &got) != nil || !reflect.DeepEqual(got, fullStatus()) {
		t.Errorf("%v, %s", err, out)
	}
	if out, _, err = command(t.Context(), "status", "--admin-socket", r.socket, "-o", "yaml"); err != nil || !strings.Contains(out.String(), "kernel: 6.1.0-30-amd64") {
		t.Errorf("%v, %s", err, out)
	}
}
