package plugin

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/source"
)

var container = source.Container{PodUID: "u", PodNamespace: "default", PodName: "p", Name: "c"}

func TestPrepareReturnsTheAnswer(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	got, err := n.Prepare(t.Context(), container, resource, []string{"dev-0", "dev-1"})
	want := answer.Answer{Envs: map[string]string{"EMULATED_DEVICES": "dev-0,dev-1"}, Nodes: []answer.Node{
		{HostPath: "/dev/null", ContainerPath: "/dev/emulated-dev-0", Permissions: "rw"}, {HostPath: "/dev/null", ContainerPath: "/dev/emulated-dev-1", Permissions: "rw"},
	}}
	if err != nil || !reflect.DeepEqual(got, want) || p.Allocations.Load() != 1 {
		t.Errorf("answer %+v, %v, after %d calls", got, err, p.Allocations.Load())
	}
	n.plug(emulator.Config{Resource: "example.com/cdi", Endpoint: "cdi.sock", CDIKind: "example.com/cdi", Devices: emulator.Devices(1, 0)})
	n.awaitHealthy("example.com/cdi", 1)
	got, err = n.Prepare(t.Context(), container, "example.com/cdi", []string{"dev-0"})
	if err != nil || !slices.Equal(got.CDIDevices, []string{"example.com/cdi=dev-0"}) || got.Nodes != nil {
		t.Errorf("answer %+v, %v", got, err)
	}
	if _, err := n.Prepare(t.Context(), container, resource, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Prepare of nothing: %v", err)
	}
}

// An error is the plugin's refusal, or that of the way to it.
func TestPrepareTellsARefusalFromAFailure(t *testing.T) {
	var answers atomic.Pointer[v1beta1.AllocateResponse]
	var fail atomic.Pointer[error]
	n := start(t)
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Allocate: func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		if err := fail.Load(); err != nil {
			return nil, *err
		}
		return answers.Load(), nil
	}}})
	n.awaitHealthy(resource, 1)
	for name, c := range map[string]struct {
		err     error
		answer  *v1beta1.AllocateResponse
		refused bool
		want    string
	}{
		"plain words":          {err: errors.New("device dev-0 is on fire"), refused: true, want: "says: device dev-0 is on fire"},
		"invalid argument":     {err: status.Error(codes.InvalidArgument, "no such mode"), refused: true, want: "no such mode"},
		"no words":             {err: status.Error(codes.Internal, ""), refused: true, want: "of code Internal"},
		"unimplemented":        {err: status.Error(codes.Unimplemented, "later"), refused: true, want: "later"},
		"many words":           {err: errors.New(strings.Repeat("x", 5000)), refused: true, want: "xxx..."},
		"unavailable":          {err: status.Error(codes.Unavailable, "driver restarts"), want: "driver restarts"},
		"deadline":             {err: status.Error(codes.DeadlineExceeded, "driver is slow"), want: "driver is slow"},
		"cancelled":            {err: status.Error(codes.Canceled, "driver restarts"), want: "driver restarts"},
		"no response":          {answer: &v1beta1.AllocateResponse{}, refused: true, want: "cannot be used: container_responses has 0 entries"},
		"answer without sense": {answer: answerWith(&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{{}}}), refused: true, want: "mounts[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			fail.Store(nil)
			if c.err != nil {
				fail.Store(&c.err)
			}
			answers.Store(c.answer)
			_, err := n.Prepare(t.Context(), container, resource, []string{"dev-0"})
			var refused *answer.RefusedError
			if errors.As(err, &refused) != c.refused || errdefs.IsUnavailable(err) == c.refused || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1500 {
				t.Errorf("error %v, want refused %v and %q", err, c.refused, c.want)
			}
			if c.refused && refused.Resource != resource {
				t.Errorf("refused: %+v", refused)
			}
		})
	}
}

func TestPrepareOfAPluginThatIsAway(t *testing.T) {
	n := start(t)
	if _, err := n.Prepare(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no device plugin has registered it") {
		t.Errorf("Prepare: %v", err)
	}
	entered := make(chan struct{})
	_, kill := n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Allocate: func(ctx context.Context, _ []string) (*v1beta1.AllocateResponse, error) {
		close(entered)
		<-ctx.Done()
		return nil, errors.New("too late")
	}}})
	n.awaitHealthy(resource, 1)
	go func() { <-entered; kill() }()
	if _, err := n.Prepare(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("Prepare by a plugin that dies: %v", err)
	}
	n.awaitHealthy(resource, 0)
	if _, err := n.Prepare(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "has been gone since") {
		t.Errorf("Prepare: %v", err)
	}
}

func TestPrepareOfAPluginThatHangsTimesOut(t *testing.T) {
	n := start(t, func(s *Source) { s.cfg.AllocateTimeout = 50 * time.Millisecond })
	ended := make(chan struct{})
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Allocate: func(ctx context.Context, _ []string) (*v1beta1.AllocateResponse, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}})
	n.awaitHealthy(resource, 1)
	if _, err := n.Prepare(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("Prepare: %v", err)
	}
	<-ended // the plugin is told
	if got := healthy(n.Snapshot(), resource); got != 1 {
		t.Errorf("%d healthy devices", got)
	}
}

// Kubelets never have two of these calls at a time, and plugins rely on it; a caller who goes away does not wait for its turn.
func TestAllocationsOfAPluginAreOneAfterAnother(t *testing.T) {
	n := start(t)
	var at, most atomic.Int64
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Preferred: true, Hooks: emulator.Hooks{Allocate: func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		most.Store(max(most.Load(), at.Add(1)))
		entered <- struct{}{}
		<-leave
		at.Add(-1)
		return answerWith(&v1beta1.ContainerAllocateResponse{}), nil
	}}})
	n.awaitHealthy(resource, 1)
	errs := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := n.Prepare(context.Background(), container, resource, []string{"dev-0"})
			errs <- err
		}()
	}
	<-entered
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Prepare(gone, container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("Prepare without time: %v", err)
	}
	if got := n.Prefer(gone, resource, []string{"dev-0"}, nil, 1); got != nil {
		t.Errorf("Prefer without time: %v", got)
	}
	close(leave)
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

func TestPreferenceIsAskedForWhenItIsOffered(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(4, 0), Preferred: true})
	silent, _ := n.plug(emulator.Config{Resource: "example.com/silent", Endpoint: "silent.sock", Devices: emulator.Devices(4, 0)})
	n.awaitHealthy(resource, 4)
	n.awaitHealthy("example.com/silent", 4)
	available := []string{"dev-0", "dev-1", "dev-2", "dev-3"}
	if got := n.Prefer(t.Context(), resource, available, []string{"dev-0"}, 2); !slices.Equal(got, []string{"dev-0", "dev-3"}) {
		t.Errorf("preference %v", got)
	}
	if got := n.Prefer(t.Context(), "example.com/silent", available, nil, 2); got != nil || silent.Preferences.Load() > 0 {
		t.Errorf("preference %v of a plugin that offers none", got)
	}
	if got := n.Prefer(t.Context(), "example.com/none", available, nil, 2); got != nil {
		t.Errorf("preference %v of nobody", got)
	}
	if got := n.Prefer(t.Context(), resource, available, nil, 5); got != nil || p.Preferences.Load() != 1 {
		t.Errorf("preference %v for more than there are", got)
	}
}

func TestPreferenceThatDoesNotFitIsIgnored(t *testing.T) {
	var ids atomic.Pointer[[]string]
	n := start(t, func(s *Source) { s.pace.prefer = 100 * time.Millisecond })
	n.plug(emulator.Config{Devices: emulator.Devices(4, 0), Preferred: true, Hooks: emulator.Hooks{
		Prefer: func(ctx context.Context, _ *v1beta1.ContainerPreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
			switch p := ids.Load(); {
			case p == nil:
				<-ctx.Done()
				return nil, ctx.Err()
			case len(*p) == 0:
				return &v1beta1.PreferredAllocationResponse{}, nil
			case (*p)[0] == "error":
				return nil, errors.New("no idea")
			default:
				return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: *p}}}, nil
			}
		}}})
	n.awaitHealthy(resource, 4)
	ask := func() []string {
		return n.Prefer(t.Context(), resource, []string{"dev-0", "dev-1", "dev-2"}, []string{"dev-1"}, 2)
	}
	if got := ask(); got != nil {
		t.Errorf("preference %v of a plugin that hangs", got)
	}
	for name, bad := range map[string][]string{
		"no response": {}, "an error": {"error"}, "too few": {"dev-1"}, "too many": {"dev-0", "dev-1", "dev-2"}, "not available": {"dev-1", "dev-3"},
		"twice the same": {"dev-1", "dev-1"}, "without what it must have": {"dev-0", "dev-2"},
	} {
		ids.Store(&bad)
		if got := ask(); got != nil {
			t.Errorf("%s: preference %v", name, got)
		}
	}
	ids.Store(&[]string{"dev-2", "dev-1"})
	if got := ask(); !slices.Equal(got, []string{"dev-2", "dev-1"}) {
		t.Errorf("preference %v", got)
	}
}

func TestBeforeStartIsThePluginsWhenItAsksForIt(t *testing.T) {
	var fail atomic.Pointer[error]
	n := start(t, func(s *Source) { s.pace.start = 100 * time.Millisecond })
	if err := n.BeforeStart(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("BeforeStart for a plugin that is not known: %v", err)
	}
	hang := errors.New("hang")
	p, kill := n.plug(emulator.Config{Devices: emulator.Devices(1, 0), PreStart: true, Hooks: emulator.Hooks{PreStart: func(ctx context.Context, ids []string) error {
		if !slices.Equal(ids, []string{"dev-0"}) {
			return errors.New("not the devices")
		}
		err := fail.Load()
		if err == nil {
			return nil
		}
		if errors.Is(*err, hang) {
			<-ctx.Done()
		}
		return *err
	}}})
	plain, killPlain := n.plug(emulator.Config{Resource: "example.com/plain", Endpoint: "plain.sock", Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
	n.awaitHealthy("example.com/plain", 1)
	if err := n.BeforeStart(t.Context(), container, resource, []string{"dev-0"}); err != nil || p.PreStarts.Load() != 1 {
		t.Errorf("BeforeStart: %v, after %d calls", err, p.PreStarts.Load())
	}
	if err := n.BeforeStart(t.Context(), container, "example.com/plain", []string{"dev-0"}); err != nil || plain.PreStarts.Load() != 0 {
		t.Errorf("BeforeStart: %v, after %d calls", err, plain.PreStarts.Load())
	}
	words := errors.New("cannot reset")
	fail.Store(&words)
	if err := n.BeforeStart(t.Context(), container, resource, []string{"dev-0"}); err == nil || errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "cannot reset") {
		t.Errorf("BeforeStart: %v", err)
	}
	fail.Store(&hang)
	if err := n.BeforeStart(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("BeforeStart by a plugin that hangs: %v", err)
	}
	kill()
	killPlain()
	n.awaitHealthy(resource, 0)
	n.awaitHealthy("example.com/plain", 0)
	if err := n.BeforeStart(t.Context(), container, resource, []string{"dev-0"}); !errdefs.IsUnavailable(err) {
		t.Errorf("BeforeStart by a plugin that is gone: %v", err)
	}
	// It did not ask for it when it was there.
	if err := n.BeforeStart(t.Context(), container, "example.com/plain", []string{"dev-0"}); err != nil {
		t.Errorf("BeforeStart: %v", err)
	}
}

// A call whose time is over is told by how long it had, and not in gRPC's words; a plugin's own words about a deadline stay.
func TestALateAnswer(t *testing.T) {
	deadline := func(left time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		t.Cleanup(cancel)
		return ctx
	}
	late := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"its time is over":       {deadline(-time.Second), late, true},
		"a moment before":        {deadline(time.Second), late, true},
		"a plugin's own":         {deadline(29 * time.Second), late, false},
		"another error":          {deadline(-time.Second), status.Error(codes.Unavailable, "x"), false},
		"nothing went wrong":     {deadline(-time.Second), nil, false},
		"a call without a limit": {t.Context(), late, false},
	} {
		if got := isLate(c.ctx, c.err, 30*time.Second); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
