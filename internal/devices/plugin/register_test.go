package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
)

func TestPluginThatServesFirst(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(3, 2)})
	snap := n.awaitHealthy(resource, 3)
	for i, d := range snap.Of(resource) {
		if d.Name != fmt.Sprintf("dev-%d", i) || d.Origin != p.Socket() || len(d.NUMA) != 1 || d.NUMA[0] != i%2 {
			t.Errorf("device %+v", d)
		}
	}
	if len(snap.Problems) > 0 {
		t.Errorf("problems: %v", snap.Problems)
	}
}

func TestPluginThatServesOnlyAfterSuccess(t *testing.T) {
	n := start(t)
	n.plug(emulator.Config{Devices: emulator.Devices(3, 0), RegisterBeforeServing: true})
	n.awaitHealthy(resource, 3)
}

// Register has answered long before such a plugin serves.
func TestPluginThatServesLate(t *testing.T) {
	n := start(t)
	if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "emulator.sock", ResourceName: resource}); err != nil {
		t.Fatal(err)
	}
	n.awaitProblem("emulator.sock: the plugin has registered example.com/widget and cannot be used yet: its socket is not there")
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), NoRegistration: true})
	snap := n.awaitHealthy(resource, 1)
	if len(snap.Problems) > 0 {
		t.Errorf("problems: %v", snap.Problems)
	}
}

func TestRegisterRefuses(t *testing.T) {
	n := start(t)
	for name, c := range map[string]struct {
		version, endpoint, resource string
		want                        []string
	}{
		"version":               {"v1alpha", "a.sock", resource, []string{`"v1alpha"`, `"v1beta1"`, "use a release"}},
		"no version":            {"", "a.sock", resource, []string{`[""]`}},
		"DNS label":             {"v1beta1", "a.sock", "gpu", []string{`"gpu" is no extended resource`, "no domain", "example.com/gpu"}},
		"empty name":            {"v1beta1", "a.sock", "", []string{`"" is no extended resource`}},
		"kubernetes.io":         {"v1beta1", "a.sock", "x.kubernetes.io/gpu", []string{"reserved"}},
		"quota's prefix":        {"v1beta1", "a.sock", "requests.example.com/gpu", []string{"quotas"}},
		"capitals in domain":    {"v1beta1", "a.sock", "Example.com/gpu", []string{`"Example.com/gpu"`}},
		"two slashes":           {"v1beta1", "a.sock", "example.com/gpu/1", []string{`"example.com/gpu/1"`}},
		"name too long":         {"v1beta1", "a.sock", "example.com/" + strings.Repeat("x", 64), []string{"63"}},
		"no room for quotas":    {"v1beta1", "a.sock", strings.Repeat("a.", 125) + "com/gpu", []string{"253"}},
		"no endpoint":           {"v1beta1", "", resource, []string{`"" cannot be used: it is empty`}},
		"endpoint with a path":  {"v1beta1", "../a.sock", resource, []string{`"../a.sock"`, "not a bare file name", n.cfg.Dir}},
		"absolute endpoint":     {"v1beta1", "/a.sock", resource, []string{"not a bare file name"}},
		"endpoint ..":           {"v1beta1", "..", resource, []string{"not a bare file name"}},
		"endpoint .":            {"v1beta1", ".", resource, []string{"not a bare file name"}},
		"kubelet.sock":          {"v1beta1", "kubelet.sock", resource, []string{"own socket"}},
		"hidden name of ours":   {"v1beta1", ".k-1", resource, []string{"own"}},
		"endpoint too long":     {"v1beta1", strings.Repeat("x", 107), resource, []string{"at most 107"}},
		"everything at a time":  {"v9", "/", "gpu", []string{`"v9"`, `"/"`, `"gpu"`}},
		"endpoint with zero":    {"v1beta1", "a\x00", resource, []string{"not a bare file name"}},
		"name with a bad start": {"v1beta1", "a.sock", "example.com/-gpu", []string{`"example.com/-gpu"`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := n.register(&v1beta1.RegisterRequest{Version: c.version, Endpoint: c.endpoint, ResourceName: c.resource})
			if status.Code(err) != codes.InvalidArgument {
				t.Fatalf("error %v, want InvalidArgument", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
	if snap := n.Snapshot(); len(snap.Resources) > 0 {
		t.Errorf("resources: %v", snap.Resources)
	}
}

func TestNameTakenByAnActivePlugin(t *testing.T) {
	n := start(t)
	n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "other.sock", ResourceName: resource})
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "emulator.sock, which is active") {
		t.Errorf("error %v, want AlreadyExists", err)
	}
	if healthy(n.Snapshot(), resource) != 2 {
		t.Error("the active plugin's devices are not healthy any more")
	}
}

// A plugin whose stream is open and that does not answer is not active: another may have its name, and its devices are not granted.
func TestNameOfAPluginThatHangs(t *testing.T) {
	n := start(t)
	hang := make(chan struct{})
	n.plug(emulator.Config{Devices: emulator.Devices(2, 0), IgnoreKubeletSocket: true, IgnoreOwnSocket: true, Hooks: emulator.Hooks{
		Options: func(ctx context.Context) (*v1beta1.DevicePluginOptions, error) {
			select {
			case <-hang:
				<-ctx.Done()
				return nil, ctx.Err()
			default:
				return &v1beta1.DevicePluginOptions{}, nil
			}
		},
	}})
	n.awaitHealthy(resource, 2)
	close(hang)
	if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "other.sock", ResourceName: resource}); err != nil {
		t.Fatal(err)
	}
	snap := n.awaitHealthy(resource, 0)
	if d := snap.Of(resource); len(d) != 2 || !strings.Contains(d[0].Unhealthy, "did not answer within 1s") {
		t.Errorf("devices: %+v", d)
	}
	n.plug(emulator.Config{Devices: emulator.Devices(3, 0), Endpoint: "other.sock", NoRegistration: true})
	n.awaitHealthy(resource, 3)
}

func TestSameEndpointReplaces(t *testing.T) {
	n := start(t)
	_, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	kill()
	n.plug(emulator.Config{Devices: emulator.Devices(5, 0)})
	n.awaitHealthy(resource, 5)
}

// A plugin that registers again while its stream is open loses nothing meanwhile.
func TestRegistrationWhileActive(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	streams := p.Streams.Load()
	if err := p.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p.Streams.Load() == streams {
		_, ticked := n.count()
		if healthy(n.Snapshot(), resource) != 2 {
			t.Fatal("the devices were unhealthy meanwhile")
		}
		<-ticked
	}
	n.awaitHealthy(resource, 2)
}

func TestOtherSocketIsTheSameResource(t *testing.T) {
	n := start(t)
	_, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	kill()
	n.awaitHealthy(resource, 0)
	n.plug(emulator.Config{Devices: emulator.Devices(2, 0), Endpoint: "2.sock"})
	snap := n.awaitHealthy(resource, 2)
	if len(snap.Devices) != 2 || !strings.HasSuffix(snap.Devices[0].Origin, "/2.sock") || len(snap.Resources) != 1 || len(snap.Problems) > 0 {
		t.Errorf("snapshot: %+v", snap)
	}
}

func TestOldPluginWithoutOptions(t *testing.T) {
	n := start(t)
	// What it has said as it registered is what is known of it.
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), NoOptions: true, PreStart: true})
	n.awaitHealthy(resource, 1)
	if required, known := n.StartRequired(resource); !required || !known {
		t.Errorf("PreStartContainer required: %v, known: %v", required, known)
	}
	n.plug(emulator.Config{Resource: "example.com/older", Endpoint: "older.sock", Devices: emulator.Devices(1, 0), NoOptions: true})
	n.awaitHealthy("example.com/older", 1)
	if required, known := n.StartRequired("example.com/older"); required || !known {
		t.Errorf("PreStartContainer required: %v, known: %v", required, known)
	}
}

func TestPluginIsNotUsedUntilItTellsItsOptions(t *testing.T) {
	n := start(t)
	mended := make(chan struct{})
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Options: func(context.Context) (*v1beta1.DevicePluginOptions, error) {
		select {
		case <-mended:
			return &v1beta1.DevicePluginOptions{}, nil
		default:
			return nil, errors.New("no driver yet")
		}
	}}})
	n.awaitProblem("cannot be used yet: GetDevicePluginOptions: no driver yet")
	if p.Streams.Load() > 0 {
		t.Error("ListAndWatch was called")
	}
	close(mended)
	n.awaitHealthy(resource, 1)
}

func TestManyRegistrationsCostNothing(t *testing.T) {
	n := start(t)
	n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	before := runtime.NumGoroutine()
	most := 0
	for i := range 1000 {
		req := &v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "emulator.sock", ResourceName: resource}
		if i%2 == 1 { // and nobody serves this one
			req = &v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: fmt.Sprintf("%d.sock", i), ResourceName: "example.com/none"}
		}
		if err := n.register(req); err != nil {
			t.Fatal(err)
		}
		most = max(most, runtime.NumGoroutine())
	}
	if most > before+200 {
		t.Errorf("%d goroutines, and %d before", most, before)
	}
	n.awaitHealthy(resource, 2)
	n.Source.mu.Lock()
	defer n.Source.mu.Unlock()
	if len(n.plugins) != 2 {
		t.Errorf("%d plugins", len(n.plugins))
	}
}

func TestResourcesAreBounded(t *testing.T) {
	n := start(t)
	for i := range maxResources {
		if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "a.sock", ResourceName: fmt.Sprintf("example.com/r%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "a.sock", ResourceName: resource})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "1024") {
		t.Errorf("error %v, want ResourceExhausted", err)
	}
	n.await("all of them", func(s *inventory.Snapshot) bool { return len(s.Resources) == maxResources })
}
