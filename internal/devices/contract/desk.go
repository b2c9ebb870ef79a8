package contract

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
)

// place is where this process has the folders that the plugin sees as kubelets'.
type place struct{ plugins, registry, cdi string }

// registration is one Register, or what a socket in the plugin watcher's folder has said.
type registration struct {
	at                          time.Time
	resource, version, endpoint string
	supported                   []string       // of the plugin watcher: all versions
	options                     *judge.Options // nil: none were told
	socket                      string         // as this process sees it
	watched                     bool
}

func (r registration) versions() []string {
	if r.watched {
		return r.supported
	}
	return []string{r.version}
}

// desk takes registrations, all of them: what is wrong with one is judged afterwards, and the plugin goes on to be tried.
type desk struct {
	v1beta1.UnimplementedRegistrationServer
	place
	server *grpc.Server
	served chan struct{}

	mu      sync.Mutex
	refuse  bool
	all     []registration
	changed chan struct{} // closed at the next registration
	watcher *watcher
	watch   func() *watcher // starts one
}

const kubeletSocket = "kubelet.sock"

func openDesk(ctx context.Context, p place) (*desk, error) {
	d := &desk{place: p, changed: make(chan struct{})}
	d.watch = func() *watcher { return watch(ctx, d) }
	d.watcher = d.watch()
	if err := d.open(); err != nil {
		d.watcher.stop()
		return nil, err
	}
	return d, nil
}

// open serves kubelet.sock. The name is there when the socket is served, not a moment before: a plugin that sees it come registers once.
func (d *desk) open() error {
	hidden := filepath.Join(d.plugins, ".desk")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // it will not have the name that it was made with
	defer os.Remove(hidden)
	if err := os.Link(hidden, filepath.Join(d.plugins, kubeletSocket)); err != nil { // plugins look out for a creation, which a rename is not
		l.Close()
		return err
	}
	d.server, d.served = grpc.NewServer(), make(chan struct{})
	v1beta1.RegisterRegistrationServer(d.server, d)
	go func(s *grpc.Server, served chan struct{}) {
		defer close(served)
		_ = s.Serve(l) // it ends with shut
	}(d.server, d.served)
	return nil
}

// shut ends kubelet.sock and removes it.
func (d *desk) shut() {
	if d.server != nil {
		d.server.Stop()
		<-d.served
		d.server = nil
		_ = os.Remove(filepath.Join(d.plugins, kubeletSocket)) // it is ours; what is left goes with the folder
	}
}

// watchAgain does what a kubelet's start does with the plugin watcher's folder: each socket is new to it.
func (d *desk) watchAgain() error {
	d.watcher.stop()
	d.watcher = d.watch()
	return nil
}

func (d *desk) close() {
	d.shut()
	d.watcher.stop()
}

// Register takes a plugin.
func (d *desk) Register(_ context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	reg := registration{at: time.Now(), resource: req.GetResourceName(), version: req.GetVersion(), endpoint: req.GetEndpoint(),
		socket: filepath.Join(d.plugins, req.GetEndpoint())}
	if o := req.GetOptions(); o != nil {
		reg.options = &judge.Options{PreStart: o.GetPreStartRequired(), Preferred: o.GetGetPreferredAllocationAvailable()}
	} else {
		reg.options = &judge.Options{}
	}
	if refused := d.record(reg); refused {
		return nil, status.Error(codes.AlreadyExists, "monopod device test refuses this registration to see what comes of it: the plugin should end, or try again after a while")
	}
	return &v1beta1.Empty{}, nil
}

func (d *desk) record(reg registration) (refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, reg)
	close(d.changed)
	d.changed = make(chan struct{})
	return d.refuse
}

func (d *desk) setRefuse(refuse bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = refuse
}

// list returns the registrations after the first ones, in order.
func (d *desk) list(after int) []registration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all[min(after, len(d.all)):])
}

// latest is the last registration of a resource after the first ones.
func (d *desk) latest(resource string, after int) (registration, bool) {
	all := d.list(after)
	for _, reg := range slices.Backward(all) {
		if reg.resource == resource {
			return reg, true
		}
	}
	return registration{}, false
}

// await waits until the registrations are as wanted. It returns false when ctx, the time or the program (ended) ended first.
func (d *desk) await(ctx context.Context, most time.Duration, ended <-chan struct{}, is func([]registration) bool) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		if is(d.list(0)) {
			return true
		}
		select {
		case <-changed:
		case <-t.C:
			return false
		case <-ended:
			return is(d.list(0))
		case <-ctx.Done():
			return false
		}
	}
}

// sockets are the names of the plugins' sockets in the folder.
func (d *desk) sockets() (names []string) {
	entries, _ := os.ReadDir(d.plugins) // it is ours
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 && e.Name() != kubeletSocket {
			names = append(names, e.Name())
		}
	}
	return names
}

// removeSockets removes the plugins' sockets.
func (d *desk) removeSockets() error {
	var errs []error
	for _, name := range d.sockets() {
		if err := os.Remove(filepath.Join(d.plugins, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restart does what a kubelet's start does.
func (d *desk) restart() error {
	d.shut()
	if err := d.removeSockets(); err != nil {
		return err
	}
	return d.open()
}
