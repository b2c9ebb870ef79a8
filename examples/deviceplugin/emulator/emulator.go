// Package emulator is a device plugin without devices: it offers as many as wanted, under any name, and fails in every way that it is told to.
// It speaks the kubelet's device plugin API, v1beta1, with whoever serves kubelet.sock.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config is what the plugin offers and how it behaves. The zero values of all fields but Dir and Resource are usable.
type Config struct {
	// Dir is the folder of kubelet.sock and of the plugin's socket.
	Dir string
	// RegistryDir, when it is set, is where the plugin's socket is, to be found there by a plugin watcher; Dir is not used.
	RegistryDir string
	// Endpoint is the socket's name; empty: "emulator.sock".
	Endpoint string
	// Resource is the extended resource that is offered.
	Resource string
	// Version is what Register says of the API; empty: v1beta1.
	Version string
	// Devices are offered at first; Devices(n) makes some.
	Devices []*v1beta1.Device

	// RegisterBeforeServing is what the API says: a plugin may serve only after a registration that succeeded. Most plugins serve first.
	RegisterBeforeServing bool
	// NoRegistration leaves the registration to calls of Register.
	NoRegistration bool
	// IgnoreKubeletSocket and IgnoreOwnSocket turn off what makes the plugin register again: a new kubelet.sock, the removal of its own socket.
	IgnoreKubeletSocket, IgnoreOwnSocket bool

	// NoOptions makes GetDevicePluginOptions an unknown method, as old plugins have it.
	NoOptions bool
	// Preferred offers GetPreferredAllocation, which prefers the last ones of what is available.
	Preferred bool
	// PreStart asks for PreStartContainer.
	PreStart bool

	// NodePath is the host's device node behind each device; a %s in it is the device's ID. Empty: /dev/null.
	NodePath string
	// CDIKind, "vendor.com/class", has Allocate answer with CDI names of this kind in place of device nodes.
	CDIKind string

	// Hooks replace what the calls do by themselves. They may block, until ctx ends.
	Hooks Hooks
	// Quirks are ways to break the contract of the API in what the calls do by themselves.
	Quirks Quirks
	Log    *slog.Logger
}

// Hooks replace calls, where they are set.
type Hooks struct {
	Options  func(ctx context.Context) (*v1beta1.DevicePluginOptions, error)
	Allocate func(ctx context.Context, ids []string) (*v1beta1.AllocateResponse, error)
	Prefer   func(ctx context.Context, req *v1beta1.ContainerPreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error)
	PreStart func(ctx context.Context, ids []string) error
	// Info and Notified are those of the plugin watcher.
	Info     func() *registerapi.PluginInfo
	Notified func(*registerapi.RegistrationStatus)
	// Registered is told what came of each Register.
	Registered func(error)
}

// Quirks break the contract.
type Quirks struct {
	// NoList never sends a list, EndStream ends each stream after its first list, OneStream has only the first stream get a list, and NewIDs
	// gives the devices other IDs for each stream.
	NoList, EndStream, OneStream, NewIDs bool
	// Later changes the devices of a stream's second list and those after it, where it is set; the second one comes at once.
	Later func([]*v1beta1.Device) []*v1beta1.Device
	// AcceptUnknown has Allocate answer for IDs that are not in the list. Unknown, where it is set, is called with such an ID.
	AcceptUnknown bool
	Unknown       func(id string)
	// Answer changes the answer for a container, where it is set.
	Answer func(ids []string, r *v1beta1.ContainerAllocateResponse)
	// Restarted is called when there is a reason to register again; StaleSocket registers without serving a new socket.
	Restarted   func()
	StaleSocket bool
}

// Devices makes n healthy devices, "dev-0" and so on, on so many NUMA nodes in turn; 0: without topology.
func Devices(n, numaNodes int) []*v1beta1.Device {
	devices := make([]*v1beta1.Device, n)
	for i := range devices {
		devices[i] = &v1beta1.Device{ID: fmt.Sprintf("dev-%d", i), Health: v1beta1.Healthy}
		if numaNodes > 0 {
			devices[i].Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(i % numaNodes)}}}
		}
	}
	return devices
}

// Plugin is one emulated plugin. Its methods are safe for concurrent use.
type Plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	registerapi.UnimplementedRegistrationServer
	cfg    Config
	socket string
	log    *slog.Logger

	// Allocations, Preferences, PreStarts and Streams count calls.
	Allocations, Preferences, PreStarts, Streams atomic.Int64

	mu      sync.Mutex
	devices []*v1beta1.Device
	changed chan struct{} // closed at the next change of the devices
	cut     chan struct{} // closed to end the streams
}

// New makes a plugin that does not run yet.
func New(cfg Config) *Plugin {
	if cfg.Endpoint == "" {
		cfg.Endpoint = "emulator.sock"
	}
	if cfg.Version == "" {
		cfg.Version = v1beta1.Version
	}
	if cfg.NodePath == "" {
		cfg.NodePath = "/dev/null"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	dir := cfg.Dir
	if cfg.RegistryDir != "" {
		dir = cfg.RegistryDir
	}
	return &Plugin{
		cfg: cfg, socket: filepath.Join(dir, cfg.Endpoint), log: cfg.Log,
		devices: cfg.Devices, changed: make(chan struct{}), cut: make(chan struct{}),
	}
}

// Socket is the path of the plugin's socket.
func (p *Plugin) Socket() string { return p.socket }

// SetDevices replaces the devices.
func (p *Plugin) SetDevices(devices []*v1beta1.Device) {
	p.update(func([]*v1beta1.Device) []*v1beta1.Device { return devices })
}

// SetHealth changes the health of a device; an empty health takes the device away, and a new ID adds one.
func (p *Plugin) SetHealth(id, health string) {
	p.update(func(old []*v1beta1.Device) []*v1beta1.Device {
		devices := slices.Clone(old)
		i := slices.IndexFunc(devices, func(d *v1beta1.Device) bool { return d.ID == id })
		switch {
		case i < 0 && health != "":
			devices = append(devices, &v1beta1.Device{ID: id, Health: health})
		case i >= 0 && health == "":
			devices = slices.Delete(devices, i, i+1)
		case i >= 0:
			devices[i] = &v1beta1.Device{ID: id, Health: health, Topology: devices[i].Topology}
		}
		return devices
	})
}

func (p *Plugin) update(f func([]*v1beta1.Device) []*v1beta1.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = f(p.devices)
	close(p.changed)
	p.changed = make(chan struct{})
}

// CutStreams ends the streams of ListAndWatch, while the plugin goes on to serve.
func (p *Plugin) CutStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.cut)
	p.cut = make(chan struct{})
}

// Run serves and registers until ctx ends, again whenever kubelet.sock is created anew or the plugin's own socket is removed.
func (p *Plugin) Run(ctx context.Context) error {
	w, err := p.watch()
	if err != nil {
		return err
	}
	defer w.Close()
	for ctx.Err() == nil {
		if err := p.once(ctx, w); err != nil && ctx.Err() == nil {
			p.log.Warn("the plugin starts again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// once serves and registers, until there is a reason to do both again.
func (p *Plugin) once(ctx context.Context, w *watch) error {
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	w.drain()
	watcherFinds := p.cfg.RegistryDir != ""
	if p.cfg.RegisterBeforeServing && !p.cfg.NoRegistration && !watcherFinds {
		if err := p.Register(ctx); err != nil {
			return err
		}
	}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	v1beta1.RegisterDevicePluginServer(server, p)
	if watcherFinds {
		registerapi.RegisterRegistrationServer(server, p)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() { server.Stop(); <-ended }()
	p.log.Info("the plugin serves", "socket", p.socket)
	if !p.cfg.RegisterBeforeServing && !p.cfg.NoRegistration && !watcherFinds {
		if err := p.Register(ctx); err != nil {
			return err
		}
	}
	for {
		if err := w.wait(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if f := p.cfg.Quirks.Restarted; f != nil {
			f()
		}
		if !p.cfg.Quirks.StaleSocket {
			return nil
		}
		if err := p.Register(ctx); err != nil {
			p.log.Warn("the plugin is not registered", "error", err)
		}
	}
}

// Register registers at kubelet.sock.
func (p *Plugin) Register(ctx context.Context) (err error) {
	if f := p.cfg.Hooks.Registered; f != nil {
		defer func() { f(err) }()
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.cfg.Dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: p.cfg.Version, Endpoint: p.cfg.Endpoint, ResourceName: p.cfg.Resource, Options: p.options(),
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", p.cfg.Resource, err)
	}
	p.log.Info("the plugin is registered", "resource", p.cfg.Resource)
	return nil
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{PreStartRequired: p.cfg.PreStart, GetPreferredAllocationAvailable: p.cfg.Preferred}
}
