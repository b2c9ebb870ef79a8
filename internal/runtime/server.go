// Package runtime is the role runtime: a CRI v1 server (k8s.io/cri-api) for anybody's kubelet.
//
// This package is the edge: each RPC has a file, which validates, calls the part that does the work, and translates. The work is
// done in sandbox, container and stream; images and the network are packages of their own, and the processes belong to the
// executor, so that neither a restart nor a crash of this server touches them.
//
// A field that is not honoured is refused by name; an RPC that is not there answers Unimplemented by name.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/runtime/imageservice"
	"monopod.dev/monopod/internal/runtime/pulse"
	"monopod.dev/monopod/internal/runtime/stats"
	"monopod.dev/monopod/internal/runtime/stream"
	"monopod.dev/monopod/internal/runtime/stream/wire"
	"monopod.dev/monopod/internal/state"
)

// Name is what the runtime calls itself (VersionResponse.runtime_name).
const Name = "monopod"

// nativeHandler is the runtime handler that is also the default one.
const nativeHandler = hostfacts.NativeHandler

// maxMessage bounds a gRPC message, in bytes; kubelets use the same.
const maxMessage = 16 << 20

// Config is what a Server works with.
type Config struct {
	// Socket is the unix socket to serve CRI at.
	Socket string
	// DataDir and RunDir are the node's directories: what survives a reboot, and what belongs to this boot.
	DataDir, RunDir string
	// CgroupRoot is the cgroup below which sandboxes get theirs when their configuration names none.
	CgroupRoot string
	// CgroupDriver is who makes cgroups: systemd.Driver, or this runtime.
	CgroupDriver string
	CDISpecDirs  []string
	Images       ImageStore
	Network      Network
	Executor     Executor
	DB           *state.DB
	Streaming    Streaming
	// Handlers are the runtime handlers beside the native one.
	Handlers []Handler
	// LogRotation rotates containers' logs in their writer; the zero value does not.
	LogRotation life.LogRotation
	// SELinux says whether containers are labelled; the zero value is hostfacts.SELinuxAuto.
	SELinux hostfacts.SELinuxMode
	// DefaultMaskedPaths gives containers whose client names neither masked nor read-only paths the usual ones.
	DefaultMaskedPaths bool
	// PrivilegedPorts: to listen below port 1024, and to ping, takes a capability in pods, too.
	PrivilegedPorts bool
	// IgnoreCDIAnnotations: only CRI's CDI_devices ask for devices, no annotations of containers.
	IgnoreCDIAnnotations bool
	Version              string
	// ExecutorBehind says why the executor that runs is not the installed one; empty: it is.
	ExecutorBehind string
	// AbandonAfter is how long a sandbox or a container stays whose client has gone before the answer, and which nobody has named since;
	// 0 is five minutes.
	AbandonAfter time.Duration
	// KillBound is how long a call waits for processes to end after SIGKILL; 0 is ten seconds.
	KillBound time.Duration
	Log       *slog.Logger
}

// Streaming says where the streams of Exec, Attach and PortForward are served.
type Streaming struct {
	// Address is a loopback address; the zero value is 127.0.0.1. Port 0 takes a free one.
	Address netip.Addr
	Port    uint16
	// Idle ends a stream over which nothing went for that long; 0: never.
	Idle time.Duration
}

// Server serves CRI.
type Server struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	cfg     Config
	cgroups *cgroup.Host
	rooms
	streams   *stream.Runner
	streaming *wire.Server
	stats     *stats.Collector
	executor  *pulse.Pulse
	network   *pulse.Pulse
	events    *teller
	measures  measures
	details   details

	ready chan struct{}
}

// New opens the stored state and makes it agree with the executor, the network and the host, in both directions. What runs
// goes on running.
func New(ctx context.Context, cfg Config) (_ *Server, err error) {
	s := &Server{cfg: cfg, executor: watchExecutor(cfg.Executor), network: watchNetwork(cfg.Network), ready: make(chan struct{})}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	if s.cgroups, err = cgroup.Detect(); err != nil {
		return nil, err
	}
	if cfg.CgroupDriver == systemd.Driver {
		version, err := systemd.Check(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Log.Info("cgroups are made by systemd", "version", version)
	}
	// The root of a pod's user namespace, who is an ordinary user of the host, has to reach the root file systems in the run directory:
	// everybody passes it, and all that is in it is closed itself.
	if err := errors.Join(private.Dir(cfg.DataDir), private.Passage(cfg.RunDir)); err != nil {
		return nil, fmt.Errorf("directories of the runtime: %w", err)
	}
	if s.host, err = hostfacts.Probe(ctx, s.cgroups, cfg.DataDir, cfg.SELinux, cfg.Log); err != nil {
		return nil, err
	}
	s.host.Spec.DefaultMaskedPaths = cfg.DefaultMaskedPaths
	if s.host.Runtimes, err = s.probeHandlers(ctx); err != nil {
		return nil, err
	}
	s.stats = stats.New(stats.Config{Cgroups: s.cgroups, Network: cfg.Network, LayerDir: filepath.Join(cfg.DataDir, "containers"), Log: cfg.Log})
	s.events = &teller{rooms: &s.rooms, stats: s.stats, log: cfg.Log}
	s.measures = measures{rooms: &s.rooms, stats: s.stats, executor: cfg.Executor, log: cfg.Log}
	s.details = details{rooms: &s.rooms, images: cfg.Images, executor: cfg.Executor, cgroups: s.cgroups}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.furnish(cfg, s.events, s.cgroups, boot); err != nil {
		return nil, err
	}
	s.streams = &stream.Runner{Executor: cfg.Executor, Containers: s.life, Sandboxes: s.sandboxLife, Log: cfg.Log}
	if err := s.recover(ctx); err != nil {
		return nil, err
	}
	if !cfg.Streaming.Address.IsValid() {
		cfg.Streaming.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	s.streaming, err = wire.NewServer(wire.Config{Address: cfg.Streaming.Address, Port: cfg.Streaming.Port, Idle: cfg.Streaming.Idle, Backend: s.streams, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// recover brings everything to what the records say. A leftover that cannot be cleaned up now is logged and tried again at the
// next start: it must not keep the node from serving what runs.
func (s *Server) recover(ctx context.Context) error {
	if err := s.life.Recover(ctx); err != nil {
		s.cfg.Log.Error("recovery of containers is incomplete", "error", err)
	}
	live, err := s.sandboxLife.Recover(ctx)
	if err != nil {
		s.cfg.Log.Error("recovery of sandboxes is incomplete", "error", err)
	}
	if err := s.cfg.Network.Reconcile(ctx, live); err != nil {
		s.cfg.Log.Error("recovery of the network is incomplete", "error", err)
	}
	return ctx.Err()
}

// Ready is closed when the socket is served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Serve serves until ctx ends. Containers go on afterwards.
func (s *Server) Serve(ctx context.Context) error {
	listener, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(s.unaryEdge), grpc.StreamInterceptor(s.streamEdge))
	cri.RegisterRuntimeServiceServer(server, s)
	cri.RegisterImageServiceServer(server, s)
	imageservice.Register(server, imageTools{s})

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, rec := range s.containers.List() {
		s.stats.Measure(string(rec.ID), s.folders.Written(rec.ID))
	}
	ended := make(chan error, 7)
	go func() { ended <- s.stats.Run(ctx) }()
	go func() { ended <- s.life.Watch(ctx) }()
	go func() { ended <- s.ends.UndoAbandoned(ctx) }()
	go func() { ended <- s.bin.Run(ctx) }()
	go func() { ended <- s.sandboxLife.UndoAbandoned(ctx) }()
	go func() { ended <- s.streaming.Serve(ctx) }()
	go func() { ended <- server.Serve(listener) }()
	close(s.ready)
	// Calls under way may be long, such as a followed stream: they are cut, their work is bound to finish or to be undone.
	stopServer := context.AfterFunc(ctx, server.Stop)
	defer stopServer()
	var errs []error
	for range cap(ended) {
		err := <-ended
		if ctx.Err() == nil {
			errs = append(errs, err)
		}
		cancel()
	}
	return errors.Join(errs...)
}

// listen serves the socket before it is visible under its name, so that nobody finds one that does not answer.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // the socket itself is root's
		return nil, err
	}
	hidden := path + ".new"
	if err := os.Remove(hidden); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", hidden)
	if err != nil {
		return nil, fmt.Errorf("CRI socket: %w", err)
	}
	// Closing must not unlink a name that the socket no longer has.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		l.Close()
		return nil, fmt.Errorf("CRI socket %s: %w", path, err)
	}
	return l, nil
}

// RemoveAll removes all sandboxes and their containers. It is for a server that does not serve any more.
func (s *Server) RemoveAll(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = s.life.Watch(watch) }() // ends with its context; without it no exit would be seen
	if err := s.sandboxLife.RemoveEverything(ctx); err != nil {
		return err
	}
	if s.cfg.CgroupDriver == systemd.Driver {
		if err := systemd.StopTree(ctx, place.Pods{Root: s.cfg.CgroupRoot, Driver: place.Systemd}.Node()); err != nil {
			return err
		}
	}
	return s.close()
}

// LogDirectories lists the log directories of all sandboxes, which their clients own and remove.
func (s *Server) LogDirectories() []string {
	var dirs []string
	for _, rec := range s.sandboxes.List() {
		if dir := rec.Config().GetLogDirectory(); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
