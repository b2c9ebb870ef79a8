package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fault is one way to break the contract, that --bad names.
type fault struct {
	name, what string
	set        func(s *settings)
}

// answering changes what Allocate answers.
func answering(change func(ids []string, r *v1beta1.ContainerAllocateResponse)) func(*settings) {
	return func(s *settings) {
		s.answers = append(s.answers, change)
	}
}

// listing changes the devices.
func listing(change func(devices []*v1beta1.Device) []*v1beta1.Device) func(*settings) {
	return func(s *settings) { s.Devices = change(s.Devices) }
}

// later changes the devices of all lists but the first.
func later(change func(devices []*v1beta1.Device) []*v1beta1.Device) func(*settings) {
	return func(s *settings) { s.Quirks.Later = change }
}

var calls atomic.Int64 // of Allocate, for answers that change

func twice(d []*v1beta1.Device) []*v1beta1.Device { return append(slices.Clone(d), d[0]) }

var faults = []fault{
	{"duplicate-id", "the first ID is in the list twice", listing(twice)},
	{"empty-id", "a device has no ID", listing(func(d []*v1beta1.Device) []*v1beta1.Device {
		return append(d, &v1beta1.Device{Health: v1beta1.Healthy})
	})},
	{"long-id", "a device has an ID of 70 characters", listing(func(d []*v1beta1.Device) []*v1beta1.Device {
		return append(d, &v1beta1.Device{ID: strings.Repeat("x", 70), Health: v1beta1.Healthy})
	})},
	{"health-word", "a device is \"healthy\" instead of \"Healthy\"", listing(func(d []*v1beta1.Device) []*v1beta1.Device {
		return append(d, &v1beta1.Device{ID: "odd", Health: "healthy"})
	})},
	{"numa-node", "a device is on NUMA node 5000", listing(func(d []*v1beta1.Device) []*v1beta1.Device {
		return append(d, &v1beta1.Device{ID: "far", Health: v1beta1.Healthy, Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 5000}}}})
	})},
	{"negative-numa-node", "a device is on NUMA node -1", listing(func(d []*v1beta1.Device) []*v1beta1.Device {
		return append(d, &v1beta1.Device{ID: "far", Health: v1beta1.Healthy, Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: -1}}}})
	})},
	{"later-duplicate-id", "all lists but the first have the first ID twice", later(twice)},
	{"later-numa-node", "in all lists but the first a device is on NUMA node 5000", later(func(d []*v1beta1.Device) []*v1beta1.Device {
		d = slices.Clone(d)
		d[0] = &v1beta1.Device{ID: d[0].ID, Health: d[0].Health, Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 5000}}}}
		return d
	})},
	{"no-list", "ListAndWatch never sends anything", func(s *settings) { s.Quirks.NoList = true }},
	{"end-stream", "ListAndWatch returns after its first list", func(s *settings) { s.Quirks.EndStream = true }},
	{"one-stream", "a second ListAndWatch sends nothing", func(s *settings) { s.Quirks.OneStream = true }},
	{"new-ids", "each ListAndWatch has other IDs", func(s *settings) { s.Quirks.NewIDs = true }},

	{"bad-env", "a variable is called \"A=B\"", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) { r.Envs["A=B"] = "" })},
	{"relative-path", "a path in the container is relative", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Mounts = append(r.Mounts, &v1beta1.Mount{HostPath: "/dev", ContainerPath: "lib"})
	})},
	{"bad-permissions", "the permissions are \"rwx\"", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Devices = append(r.Devices, &v1beta1.DeviceSpec{HostPath: "/dev/zero", ContainerPath: "/dev/zero", Permissions: "rwx"})
	})},
	{"missing-path", "a path on the host is not there", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Mounts = append(r.Mounts, &v1beta1.Mount{HostPath: "/no-such-folder", ContainerPath: "/lib/vendor"})
	})},
	{"no-device-node", "a device node is a file", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Devices = append(r.Devices, &v1beta1.DeviceSpec{HostPath: "/etc/passwd", ContainerPath: "/dev/passwd", Permissions: "r"})
	})},
	{"contradiction", "two things are at one path of the container", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Mounts = append(r.Mounts, &v1beta1.Mount{HostPath: "/dev", ContainerPath: "/lib/vendor"}, &v1beta1.Mount{HostPath: "/etc", ContainerPath: "/lib/vendor"})
	})},
	{"changing-node", "the same device is another node each time", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Devices = append(r.Devices, &v1beta1.DeviceSpec{HostPath: "/dev/zero", ContainerPath: fmt.Sprint("/dev/zero", calls.Add(1)), Permissions: "r"})
	})},
	{"changing-env", "a variable is another one each time", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Envs["TICKET"] = fmt.Sprint(calls.Add(1))
	})},
	{"empty-answer", "the answer has nothing in it", answering(func(_ []string, r *v1beta1.ContainerAllocateResponse) {
		r.Envs, r.Devices, r.CdiDevices = nil, nil, nil
	})},
	{"accept-unknown", "Allocate knows any ID", func(s *settings) { s.Quirks.AcceptUnknown = true }},
	{"crash-unknown", "the plugin crashes when it is asked for an unknown ID", func(s *settings) { s.Quirks.Unknown = func(string) { os.Exit(3) } }},

	{"preferred-foreign", "the preference is a device that was not offered", preferring(func(r *v1beta1.ContainerPreferredAllocationRequest) []string { return []string{"foreign"} })},
	{"preferred-short", "the preference lacks a device", preferring(func(r *v1beta1.ContainerPreferredAllocationRequest) []string {
		return r.GetAvailableDeviceIDs()[:max(0, int(r.GetAllocationSize())-1)]
	})},
	{"preferred-forgets", "the preference lacks what it must have", preferring(func(r *v1beta1.ContainerPreferredAllocationRequest) []string {
		return r.GetAvailableDeviceIDs()[:min(len(r.GetAvailableDeviceIDs()), max(0, int(r.GetAllocationSize())))]
	})},
	{"hang-preferred", "the preference never comes", func(s *settings) {
		s.Preferred = true
		s.Hooks.Prefer = func(ctx context.Context, _ *v1beta1.ContainerPreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
			return nil, hang(ctx)
		}
	}},

	{"other-options", "GetDevicePluginOptions says other than the registration", func(s *settings) {
		s.Hooks.Options = func(context.Context) (*v1beta1.DevicePluginOptions, error) {
			return &v1beta1.DevicePluginOptions{PreStartRequired: !s.PreStart, GetPreferredAllocationAvailable: s.Preferred}, nil
		}
	}},
	{"never-register", "the plugin does not register", func(s *settings) { s.NoRegistration = true }},
	{"exit-on-restart", "the plugin ends when it should register again", func(s *settings) { s.Quirks.Restarted = func() { os.Exit(0) } }},
	{"stale-socket", "the plugin registers again without serving a new socket", func(s *settings) { s.Quirks.StaleSocket = true }},
	{"ignore-sigterm", "the plugin does not end", func(s *settings) { s.ignoreSigterm = true }},
	{"leave-process", "the plugin leaves a process", func(s *settings) {
		child := exec.Command("sleep", "3600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, "deviceplugin: leave-process:", err)
		}
	}},
}

func preferring(ids func(*v1beta1.ContainerPreferredAllocationRequest) []string) func(*settings) {
	return func(s *settings) {
		s.Preferred = true
		s.Hooks.Prefer = func(_ context.Context, r *v1beta1.ContainerPreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
			return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: ids(r)}}}, nil
		}
	}
}

// breakIt sets the faults that --bad names.
func (s *settings) breakIt() error {
	for _, name := range strings.Split(s.bad, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		switch {
		case name == "":
		case i < 0:
			return fmt.Errorf("--bad %q: there is no such fault; there are: %s", name, faultNames())
		default:
			faults[i].set(s)
		}
	}
	if len(s.answers) > 0 {
		s.Quirks.Answer = func(ids []string, r *v1beta1.ContainerAllocateResponse) {
			for _, change := range s.answers {
				change(ids, r)
			}
		}
	}
	return nil
}

func faultNames() string {
	var all []string
	for _, f := range faults {
		all = append(all, f.name)
	}
	return strings.Join(all, ", ")
}
