package devicetest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/devicetest"
	"monopod.dev/monopod/examples/deviceplugin/emulator"
)

const resource = "example.com/widget"

// run runs a plugin until the returned function is called, or until the test ends.
func run(t *testing.T, cfg emulator.Config) (p *emulator.Plugin, stop func()) {
	t.Helper()
	cfg.Resource = resource
	p = emulator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return p, stop
}

func start(t *testing.T, cfg devicetest.Config) (*devicetest.Node, context.Context) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return devicetest.Start(t, cfg), ctx
}

// TestLifeOfAPlugin goes through all that a node does with a plugin.
func TestLifeOfAPlugin(t *testing.T) {
	n, ctx := start(t, devicetest.Config{})
	p, stop := run(t, emulator.Config{Dir: n.Dir(), Devices: emulator.Devices(3, 2), Preferred: true, PreStart: true})
	devices := n.WaitForHealthy(ctx, resource, 3)
	if want := (devicetest.Device{ID: "dev-1", NUMA: []int{1}}); !reflect.DeepEqual(devices[1], want) {
		t.Errorf("device %+v, want %+v", devices[1], want)
	}
	answer, err := n.Allocate(ctx, resource, []string{"dev-0"})
	want := devicetest.Answer{Devices: []devicetest.DeviceNode{{"/dev/null", "/dev/emulated-dev-0", "rw"}}, Envs: map[string]string{"EMULATED_DEVICES": "dev-0"}}
	if err != nil || !reflect.DeepEqual(answer, want) {
		t.Errorf("%+v, %v, want %+v", answer, err, want)
	}
	if got := n.Preferred(ctx, resource, []string{"dev-0", "dev-1", "dev-2"}, []string{"dev-1"}, 2); !slices.Equal(got, []string{"dev-1", "dev-2"}) {
		t.Errorf("preferred: %q", got)
	}
	if err := n.PreStart(ctx, resource, []string{"dev-0"}); err != nil || p.PreStarts.Load() != 1 {
		t.Errorf("before the start: %v, %d calls", err, p.PreStarts.Load())
	}
	p.SetHealth("dev-2", v1beta1.Unhealthy)
	n.WaitForHealthy(ctx, resource, 2)
	if _, err := n.Allocate(ctx, resource, []string{"dev-2"}); err == nil || devicetest.Refused(err) {
		t.Errorf("an unhealthy device: %v", err)
	}
	if _, err := n.Allocate(ctx, resource, []string{"dev-9"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is not there: %v", err)
	}

	n.Restart()
	n.WaitForHealthy(ctx, resource, 2)

	stop()
	n.WaitForDevices(ctx, resource, func(d []devicetest.Device) bool { return len(d) == 3 && !d[0].Healthy() })
	if problems := strings.Join(n.Problems(), "\n"); !strings.Contains(problems, "has been gone since") {
		t.Errorf("problems: %s", problems)
	}
	n.Stop()
	n.Stop()
	if _, err := os.Lstat(n.Socket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kubelet.sock of a node that was stopped: %v", err)
	}
}

func TestRefused(t *testing.T) {
	n, ctx := start(t, devicetest.Config{Quiet: true})
	run(t, emulator.Config{Dir: n.Dir(), Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{
		Allocate: func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
			return nil, errors.New("overheated")
		},
	}})
	n.WaitForHealthy(ctx, resource, 1)
	if _, err := n.Allocate(ctx, resource, []string{"dev-0"}); !devicetest.Refused(err) || !strings.Contains(err.Error(), "overheated") {
		t.Errorf("%v", err)
	}
}

func TestPluginWatcher(t *testing.T) {
	n, ctx := start(t, devicetest.Config{Registry: true})
	run(t, emulator.Config{RegistryDir: n.RegistryDir(), Devices: emulator.Devices(2, 0)})
	n.WaitForHealthy(ctx, resource, 2)
	n.Restart()
	n.WaitForHealthy(ctx, resource, 2)
}

func TestGrace(t *testing.T) {
	n, ctx := start(t, devicetest.Config{Grace: time.Nanosecond}) // which ends before the plugin can be asked
	_, stop := run(t, emulator.Config{Dir: n.Dir(), Devices: emulator.Devices(1, 0)})
	n.WaitForHealthy(ctx, resource, 1)
	stop()
	n.WaitForDevices(ctx, resource, func(d []devicetest.Device) bool { return len(d) == 0 })
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

// TestFailureSaysWhy: a test that waits in vain is told what the node sees.
func TestFailureSaysWhy(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	r := &recorder{TB: t}
	n := devicetest.Start(r, devicetest.Config{})
	run(t, emulator.Config{Dir: n.Dir(), Devices: []*v1beta1.Device{{ID: "sick", Health: "sick"}}})
	n.WaitForDevices(t.Context(), resource, func(d []devicetest.Device) bool { return len(d) == 1 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		n.WaitForHealthy(ended, resource, 1)
	}()
	for _, part := range []string{resource, `"sick"`, "counts as unhealthy"} {
		if !strings.Contains(r.failed, part) {
			t.Errorf("%q is not in: %s", part, r.failed)
		}
	}
}

// TestNothingIsLeft: the folder goes with the test.
func TestNothingIsLeft(t *testing.T) {
	var dir string
	t.Run("inner", func(t *testing.T) {
		n, _ := start(t, devicetest.Config{})
		dir = n.Dir()
	})
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", filepath.Dir(dir), err)
	}
}
