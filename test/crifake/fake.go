// Package crifake is a container runtime for the unit tests of the agent: CRI v1 on a unix socket, with containers that
// have no processes and end when a test says so. It keeps CRI's rules on states and names, so that an agent that
// breaks them fails its test.
package crifake

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the fake runtime.
type Runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	// Socket is where it serves.
	Socket string
	// StreamURL is the address that Exec, Attach and PortForward answer with.
	StreamURL string
	// Attaching is called by Attach before it answers; nil: nothing is.
	Attaching func()

	// Queries counts all calls, also those that change nothing.
	Queries atomic.Int64

	server *grpc.Server
	done   chan struct{}

	mu         sync.Mutex // guards what follows
	nextID     int
	sandboxes  map[string]*cri.PodSandboxStatus
	containers map[string]*container
	images     map[string]bool
	pulls      map[string]error
	deaf       map[string]bool // containers, by name, that ignore SIGTERM
	failures   map[string]error
	calls      []string
	listeners  map[chan *cri.ContainerEventResponse]bool
	events     EventStream
	notReady   string
	cdi        map[string]bool // CDI devices that there are
	ignoresCDI bool
	// ignoresAnnotations: those that ask for CDI devices.
	ignoresAnnotations bool
	creating           func(*cri.ContainerConfig)
	name               string
	metrics            bool
	userNamespaces     bool
	version            string
	// Configs are the configurations of the containers, by container ID.
	configs map[string]*cri.ContainerConfig
}

type container struct {
	status  *cri.ContainerStatus
	sandbox string
	ended   chan struct{}
	log     *os.File // see Print
}

// Start serves a runtime on socket until the test ends.
func Start(t testing.TB, socket string) *Runtime {
	r := &Runtime{
		Socket: socket, sandboxes: map[string]*cri.PodSandboxStatus{}, containers: map[string]*container{},
		images: map[string]bool{}, pulls: map[string]error{}, deaf: map[string]bool{}, failures: map[string]error{},
		listeners: map[chan *cri.ContainerEventResponse]bool{}, configs: map[string]*cri.ContainerConfig{},
		cdi: map[string]bool{}, name: "fake", version: "1.0",
	}
	r.Serve(t)
	t.Cleanup(r.Stop)
	return r
}

// Serve begins to serve, also after Stop: what the runtime holds has stayed.
func (r *Runtime) Serve(t testing.TB) {
	listener, err := net.Listen("unix", r.Socket)
	if err != nil {
		t.Fatal(err)
	}
	r.server = grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			r.Queries.Add(1)
			return handler(ctx, req)
		}))
	cri.RegisterRuntimeServiceServer(r.server, r)
	cri.RegisterImageServiceServer(r.server, r)
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		// It ends with Stop.
		_ = r.server.Serve(listener)
	}()
}

// Stop ends the server, and with it all calls under way.
func (r *Runtime) Stop() {
	r.server.Stop()
	<-r.done
}

// HaveImage makes an image present.
func (r *Runtime) HaveImage(ref string) { r.locked(func() { r.images[ref] = true }) }

// HaveCDI makes a CDI device known. Containers that ask for others are refused.
func (r *Runtime) HaveCDI(name string) { r.locked(func() { r.cdi[name] = true }) }

// IgnoreCDIAnnotations makes the runtime create containers without the CDI devices that their annotations ask for.
func (r *Runtime) IgnoreCDIAnnotations(ignores bool) {
	r.locked(func() { r.ignoresAnnotations = ignores })
}

// IgnoreCDI makes the runtime create containers without the CDI devices that they ask for by CRI's field, as old runtimes do.
func (r *Runtime) IgnoreCDI(ignores bool) { r.locked(func() { r.ignoresCDI = ignores }) }

// HaveUserNamespaces makes the default handler say whether it can give pods user namespaces.
func (r *Runtime) HaveUserNamespaces(has bool) { r.locked(func() { r.userNamespaces = has }) }

// Creating has f called before each container is created; f may use the runtime.
func (r *Runtime) Creating(f func(*cri.ContainerConfig)) { r.locked(func() { r.creating = f }) }

// Is makes the runtime say that it is another one.
func (r *Runtime) Is(name, version string) { r.locked(func() { r.name, r.version = name, version }) }

// PullFails makes pulls of an image fail; nil: succeed. Images that this was never called for can't be pulled.
func (r *Runtime) PullFails(ref string, err error) { r.locked(func() { r.pulls[ref] = err }) }

// Deaf makes containers of this name ignore SIGTERM.
func (r *Runtime) Deaf(name string) { r.locked(func() { r.deaf[name] = true }) }

// Fail makes the calls of one method fail; nil: no longer.
func (r *Runtime) Fail(method string, err error) { r.locked(func() { r.failures[method] = err }) }

// NotReady makes the runtime say that it is not ready; empty: it is.
func (r *Runtime) NotReady(why string) { r.locked(func() { r.notReady = why }) }

// Calls are the methods that changed something, with what they were called for, since the last time.
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// Running are the IDs of the running containers of this name.
func (r *Runtime) Running(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(r.containers)) {
		if c := r.containers[id]; c.status.State == cri.ContainerState_CONTAINER_RUNNING && c.status.Metadata.Name == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// Count is how many sandboxes and containers there are, of any state.
func (r *Runtime) Count() (sandboxes, containers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes), len(r.containers)
}

// Config is the configuration that a container was created with.
func (r *Runtime) Config(id string) *cri.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.configs[id]
}

// Exit ends a running container.
func (r *Runtime) Exit(id string, code int32) {
	r.locked(func() { r.exit(r.containers[id], code) })
}

// KillSandbox ends a sandbox with its containers, as a reboot does.
func (r *Runtime) KillSandbox(id string) {
	r.locked(func() {
		for _, c := range r.containers {
			if c.sandbox == id {
				r.exit(c, 255)
			}
		}
		r.sandboxes[id].State = cri.PodSandboxState_SANDBOX_NOTREADY
		r.tell(id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	})
}

// Sandboxes are the IDs of the sandboxes that are ready.
func (r *Runtime) Sandboxes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, s := range r.sandboxes {
		if s.State == cri.PodSandboxState_SANDBOX_READY {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *Runtime) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// exit is called with r.mu held.
func (r *Runtime) exit(c *container, code int32) {
	if c == nil || c.status.State != cri.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.status.State, c.status.ExitCode, c.status.FinishedAt = cri.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	close(c.ended)
	r.tell(c.status.Id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// begin notes a call and says whether it shall fail. r.mu is held.
func (r *Runtime) begin(method, on string) error {
	r.calls = append(r.calls, method+" "+on)
	return r.failures[method]
}

func (r *Runtime) id(prefix string) string {
	r.nextID++
	return fmt.Sprintf("%s%04d", prefix, r.nextID)
}

// Version implements CRI.
func (r *Runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: r.name, RuntimeVersion: r.version, RuntimeApiVersion: "v1"}, nil
}

// RuntimeConfig implements CRI.
func (r *Runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

// Status implements CRI.
func (r *Runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: r.notReady == "", Reason: "NoNetwork", Message: r.notReady},
	}}, RuntimeHandlers: []*cri.RuntimeHandler{{Features: &cri.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: r.userNamespaces}}, {Name: "plain"}}}, nil
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}
