package emulator

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// GetDevicePluginOptions tells which of the optional calls the plugin has.
func (p *Plugin) GetDevicePluginOptions(ctx context.Context, _ *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	if p.cfg.NoOptions {
		return nil, status.Error(codes.Unimplemented, "unknown method GetDevicePluginOptions")
	}
	if f := p.cfg.Hooks.Options; f != nil {
		return f(ctx)
	}
	return p.options(), nil
}

// ListAndWatch tells the devices, and again after each change.
func (p *Plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	number := p.Streams.Add(1)
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if q := p.cfg.Quirks; q.NoList || q.OneStream && number > 1 {
		<-stream.Context().Done()
		return nil
	}
	for first := true; ; first = false {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if p.cfg.Quirks.NewIDs {
			devices = renamed(devices, number)
		}
		later := p.cfg.Quirks.Later
		if later != nil && !first {
			devices = later(devices)
		}
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		if p.cfg.Quirks.EndStream {
			return nil
		}
		if later != nil && first {
			continue
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-cut:
			return nil
		case <-changed:
		}
	}
}

// renamed gives devices other IDs.
func renamed(devices []*v1beta1.Device, number int64) []*v1beta1.Device {
	all := make([]*v1beta1.Device, len(devices))
	for i, d := range devices {
		all[i] = &v1beta1.Device{ID: fmt.Sprintf("%s-of-%d", d.ID, number), Health: d.Health, Topology: d.Topology}
	}
	return all
}

// check says which of the devices there is not.
func (p *Plugin) check(ids []string) error {
	q := p.cfg.Quirks
	if q.AcceptUnknown || q.NewIDs {
		return nil
	}
	p.mu.Lock()
	known := make(map[string]bool, len(p.devices))
	for _, d := range p.devices {
		known[d.ID] = true
	}
	p.mu.Unlock()
	for _, id := range ids {
		if known[id] {
			continue
		}
		if q.Unknown != nil {
			q.Unknown(id)
		}
		return status.Errorf(codes.NotFound, "there is no device %.80q", id)
	}
	return nil
}

// Allocate answers with a device node, or a CDI name, for each device, and with one variable that names them all.
func (p *Plugin) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	p.Allocations.Add(1)
	resp := &v1beta1.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		p.log.Info("Allocate", "devices", c.GetDevicesIds())
		if f := p.cfg.Hooks.Allocate; f != nil {
			return f(ctx, c.GetDevicesIds())
		}
		if err := p.check(c.GetDevicesIds()); err != nil {
			return nil, err
		}
		answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"EMULATED_DEVICES": strings.Join(c.GetDevicesIds(), ",")}}
		for _, id := range c.GetDevicesIds() {
			if p.cfg.CDIKind != "" {
				answer.CdiDevices = append(answer.CdiDevices, &v1beta1.CDIDevice{Name: p.cfg.CDIKind + "=" + id})
				continue
			}
			answer.Devices = append(answer.Devices, &v1beta1.DeviceSpec{
				HostPath: strings.ReplaceAll(p.cfg.NodePath, "%s", id), ContainerPath: "/dev/emulated-" + id, Permissions: "rw",
			})
		}
		if f := p.cfg.Quirks.Answer; f != nil {
			f(c.GetDevicesIds(), answer)
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}

// GetPreferredAllocation prefers what it must, and then the last ones.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	p.Preferences.Add(1)
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		if f := p.cfg.Hooks.Prefer; f != nil {
			return f(ctx, c)
		}
		ids := append([]string(nil), c.GetMustIncludeDeviceIDs()...)
		has := map[string]bool{}
		for _, id := range ids {
			has[id] = true
		}
		available := c.GetAvailableDeviceIDs()
		for i := len(available) - 1; i >= 0 && len(ids) < int(c.GetAllocationSize()); i-- {
			if !has[available[i]] {
				ids = append(ids, available[i])
			}
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// PreStartContainer does nothing, and counts.
func (p *Plugin) PreStartContainer(ctx context.Context, req *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	p.PreStarts.Add(1)
	p.log.Info("PreStartContainer", "devices", req.GetDevicesIds())
	if f := p.cfg.Hooks.PreStart; f != nil {
		if err := f(ctx, req.GetDevicesIds()); err != nil {
			return nil, err
		}
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}

// GetInfo tells a plugin watcher what this is.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	if f := p.cfg.Hooks.Info; f != nil {
		return f(), nil
	}
	return &registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: p.cfg.Resource, Endpoint: p.socket, SupportedVersions: []string{p.cfg.Version}}, nil
}

// NotifyRegistrationStatus is told what came of it.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		p.log.Info("the plugin is registered", "resource", p.cfg.Resource)
	} else {
		p.log.Warn("the plugin is refused", "resource", p.cfg.Resource, "error", s.GetError())
	}
	if f := p.cfg.Hooks.Notified; f != nil {
		f(s)
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
