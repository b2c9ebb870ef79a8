package plugin

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/contract"
)

// TestSource: device plugins are a source of devices as all are. The plugin has a preference, and wants to be told before each start.
func TestSource(t *testing.T) {
	contract.RunDeviceSource(t, func(t *testing.T) contract.DeviceSource {
		dir := folder(t)
		src, err := New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(logTo{t}, nil))})
		if err != nil {
			t.Fatal(err)
		}
		src.pace.retryMax, src.pace.silence = usual.retryMax/50, usual.silence/10
		var p *emulator.Plugin
		return contract.DeviceSource{
			Source: src, Resource: resource,
			Set: func(t *testing.T, names ...string) {
				t.Helper()
				var devices []*v1beta1.Device
				for _, name := range names {
					devices = append(devices, &v1beta1.Device{ID: name, Health: v1beta1.Healthy})
				}
				if p != nil {
					p.SetDevices(devices)
					return
				}
				// A plugin that begins while kubelet.sock comes finds it new, and begins anew in the middle of the test.
				eventually(t, "kubelet.sock", func() bool {
					_, err := os.Lstat(filepath.Join(dir, kubeletSocket))
					return err == nil
				})
				p, _ = plug(t, emulator.Config{Dir: dir, Devices: devices, Preferred: true, PreStart: true})
			},
			Break: func(_ *testing.T, name string) { p.SetHealth(name, v1beta1.Unhealthy) },
			Mend:  func(_ *testing.T, name string) { p.SetHealth(name, v1beta1.Healthy) },
		}
	})
}
