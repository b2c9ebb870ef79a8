package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
)

// withRegistry gives the source a plugin watcher's folder.
func withRegistry(dir string) func(*Source) {
	return func(s *Source) { s.cfg.RegistryDir = dir }
}

func startRegistry(t *testing.T, change ...func(*Source)) (*node, string) {
	t.Helper()
	dir := filepath.Join(folder(t), "r")
	n := start(t, append(change, withRegistry(dir))...)
	eventually(t, "the folder", func() bool {
		_, err := os.Stat(dir)
		return err == nil
	})
	return n, dir
}

func notified(t *testing.T, c <-chan *registerapi.RegistrationStatus) *registerapi.RegistrationStatus {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(deadline):
		t.Fatal("the plugin is not told")
		return nil
	}
}

func TestWatcherRegistersADevicePlugin(t *testing.T) {
	n, dir := startRegistry(t)
	told := make(chan *registerapi.RegistrationStatus, 10)
	p, _ := n.plug(emulator.Config{RegistryDir: dir, Devices: emulator.Devices(2, 0), Hooks: emulator.Hooks{
		Notified: func(s *registerapi.RegistrationStatus) { told <- s },
	}})
	if s := notified(t, told); !s.GetPluginRegistered() || s.GetError() != "" {
		t.Errorf("told %v", s)
	}
	snap := n.awaitHealthy(resource, 2)
	if snap.Devices[0].Origin != p.Socket() || len(snap.Problems) > 0 {
		t.Errorf("snapshot: %+v", snap)
	}
	if len(snap.Places) != 2 || snap.Places[1] != dir {
		t.Errorf("places: %v", snap.Places)
	}
	// The registration lasts as long as the socket, even if the plugin lives.
	if err := os.Remove(p.Socket()); err != nil {
		t.Fatal(err)
	}
	n.await("gone, or there again", func(s *inventory.Snapshot) bool { return healthy(s, resource) == 0 || p.Streams.Load() > 1 })
	if s := notified(t, told); !s.GetPluginRegistered() {
		t.Errorf("told %v", s)
	}
	n.awaitHealthy(resource, 2)
}

func TestWatcherDropsAPluginWhoseSocketGoes(t *testing.T) {
	n, dir := startRegistry(t)
	p, _ := n.plug(emulator.Config{RegistryDir: dir, Devices: emulator.Devices(2, 0), IgnoreOwnSocket: true})
	n.awaitHealthy(resource, 2)
	if err := os.Remove(p.Socket()); err != nil {
		t.Fatal(err)
	}
	snap := n.awaitHealthy(resource, 0)
	if d := snap.Of(resource); len(d) != 2 || !strings.Contains(d[0].Unhealthy, ": its socket was removed; if it does not come back, its devices are forgotten at ") {
		t.Errorf("devices: %+v", d)
	}
	wantNamedOnce(t, snap, p.Socket())
}

// Drivers have folders of their own there, and sockets elsewhere.
func TestWatcherLooksIntoFolders(t *testing.T) {
	n, dir := startRegistry(t)
	elsewhere, _ := n.plug(emulator.Config{Devices: emulator.Devices(3, 0), NoRegistration: true})
	below := filepath.Join(dir, "vendor", "gpu")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	n.plug(emulator.Config{RegistryDir: below, Endpoint: "reg.sock", Hooks: emulator.Hooks{Info: func() *registerapi.PluginInfo {
		return &registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: resource, Endpoint: elsewhere.Socket(), SupportedVersions: []string{"v1alpha", "v1beta1"}}
	}}})
	snap := n.awaitHealthy(resource, 3)
	if snap.Devices[0].Origin != elsewhere.Socket() {
		t.Errorf("device %+v", snap.Devices[0])
	}
}

func TestWatcherRefusesByName(t *testing.T) {
	n, dir := startRegistry(t)
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Endpoint: "active.sock", Resource: "example.com/active"})
	n.awaitHealthy("example.com/active", 1)
	for name, c := range map[string]struct {
		info *registerapi.PluginInfo
		want string
	}{
		"DRA":      {&registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.example.com", SupportedVersions: []string{"v1"}}, `"gpu.example.com" is a driver of dynamic resource allocation (DRAPlugin)`},
		"CSI":      {&registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "csi.example.com", SupportedVersions: []string{"1.0.0"}}, `"csi.example.com" is a driver of volumes (CSIPlugin)`},
		"unknown":  {&registerapi.PluginInfo{Type: "Teapot", Name: "x"}, `"x" has the type "Teapot", and this node knows "DevicePlugin" only`},
		"version":  {&registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: resource, SupportedVersions: []string{"v1alpha"}}, `["v1alpha"]`},
		"versions": {&registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: resource}, "speaks version"},
		"name":     {&registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: "gpu", SupportedVersions: []string{"v1beta1"}}, `"gpu" is no extended resource`},
		"endpoint": {&registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: resource, Endpoint: "x.sock", SupportedVersions: []string{"v1beta1"}}, `"x.sock" is not the absolute path`},
		"taken":    {&registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: "example.com/active", SupportedVersions: []string{"v1beta1"}}, "which is active"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan *registerapi.RegistrationStatus, 100)
			_, kill := plug(t, emulator.Config{RegistryDir: dir, Endpoint: name + ".sock", Hooks: emulator.Hooks{
				Info:     func() *registerapi.PluginInfo { return c.info },
				Notified: func(s *registerapi.RegistrationStatus) { told <- s },
			}})
			if s := notified(t, told); s.GetPluginRegistered() || !strings.Contains(s.GetError(), c.want) {
				t.Errorf("told %v, want an error with %q", s, c.want)
			}
			n.awaitProblem(c.want)
			kill()
			n.await("no problem", func(s *inventory.Snapshot) bool { return len(s.Problems) == 0 })
		})
	}
	if healthy(n.Snapshot(), "example.com/active") != 1 {
		t.Error("the active plugin is disturbed")
	}
}

// What refuses for a while is asked again.
func TestWatcherTakesANameThatBecomesFree(t *testing.T) {
	n, dir := startRegistry(t)
	_, kill := n.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
	n.plug(emulator.Config{RegistryDir: dir, Devices: emulator.Devices(5, 0)})
	n.awaitProblem("which is active")
	kill()
	n.awaitHealthy(resource, 5)
	n.await("no problem", func(s *inventory.Snapshot) bool { return len(s.Problems) == 0 })
}
