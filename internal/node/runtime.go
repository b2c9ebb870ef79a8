package node

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/choice"
	"monopod.dev/monopod/internal/network/cni"
	"monopod.dev/monopod/internal/node/status"
	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/state"
)

// runtimeState is the state file of the runtime, by which the bridge is marked.
const runtimeState = "runtime.db"

// runtimeRole is the runtime with what it stands on.
type runtimeRole struct {
	*process
	names    *dnsRole
	policies *policiesRole
	// withAgent: this process is the node's kubelet too, so that nobody else rotates logs.
	withAgent bool

	db       *state.DB
	images   *image.Store
	network  *choice.Network
	executor *client.Client
	behind   string // why the executor that runs is not the installed one; empty: it is
	server   *runtime.Server
}

func (r *runtimeRole) role() role {
	return role{name: "runtime", open: r.open, run: func(ctx context.Context) error { return r.server.Serve(ctx) }, close: r.close, remove: r.remove}
}

// ready is closed when CRI is served; it is for when the role is open.
func (r *runtimeRole) ready() <-chan struct{} { return r.server.Ready() }

// told is what the administration socket tells of; it is for when the role is open.
func (r *runtimeRole) told() *status.Runtime {
	return &status.Runtime{Socket: r.Config.Runtime.Socket, Behind: r.behind, Server: r.server, Executor: r.executor, Images: r.images}
}

// given is what the configuration says in words, as values.
type given struct {
	streams  runtime.Streaming
	executor string
	rotation life.LogRotation
}

func (r *runtimeRole) given() (g given, err error) {
	c := r.Config
	g.streams = runtime.Streaming{Port: uint16(*c.Runtime.Streaming.Port), Idle: c.Runtime.Streaming.IdleTimeout.Duration}
	if g.streams.Address, err = netip.ParseAddr(c.Runtime.Streaming.Address); err != nil {
		return g, err
	}
	if g.executor, err = executorBinary(c); err != nil {
		return g, err
	}
	g.rotation, err = logRotation(c.Runtime.LogRotation, r.withAgent)
	return g, err
}

// open opens the stores, starts or finds the executor, and recovers what an earlier run has left.
func (r *runtimeRole) open(ctx context.Context) (err error) {
	if r.db, err = r.openState(runtimeState); err != nil {
		return err
	}
	// What can be refused is refused before anything is made.
	g, err := r.given()
	if err != nil {
		return err
	}
	guard, err := r.policies.open(ctx)
	if err != nil {
		return err
	}
	start, startCtx := errgroup.WithContext(ctx)
	start.Go(func() error { return r.openExecutor(startCtx, g.executor) })
	start.Go(func() (err error) {
		r.images, err = image.Open(startCtx, image.Config{Root: filepath.Join(r.Config.DataDir, "images"),
			RegistryConfigDir: r.Config.Runtime.RegistryConfigDir, StallTimeout: stallTimeout(r.Config.Runtime), Log: r.Log.With("role", "image")})
		return err
	})
	start.Go(func() (err error) { r.network, err = r.openNetwork(startCtx, guard); return err })
	if err := start.Wait(); err != nil {
		return err
	}
	if err := r.network.Start(ctx); err != nil {
		return err
	}
	c := r.Config
	r.server, err = runtime.New(ctx, runtime.Config{
		Socket: c.Runtime.Socket, DataDir: c.DataDir, RunDir: c.RunDir, CgroupRoot: c.CgroupRoot,
		CDISpecDirs: c.Devices.CDISpecDirs, Images: r.images, Network: r.network, Executor: r.executor, DB: r.db, Streaming: g.streams,
		CgroupDriver: c.Runtime.CgroupDriver, LogRotation: g.rotation, SELinux: hostfacts.SELinuxMode(c.Runtime.SELinux), DefaultMaskedPaths: c.Runtime.DefaultMaskedPaths,
		IgnoreCDIAnnotations: c.Runtime.IgnoreCDIAnnotations, PrivilegedPorts: c.Runtime.PrivilegedPorts, Handlers: handlers(c.Runtime.Handlers), Version: r.Version, ExecutorBehind: r.behind, Log: r.Log.With("role", "runtime"),
	})
	return err
}

// openNetwork opens the two ways of connecting pods, of which the configured mode chooses one.
func (r *runtimeRole) openNetwork(ctx context.Context, guard network.Guard) (*choice.Network, error) {
	n, log := r.Config.Network, r.Log.With("role", "network")
	return choice.New(ctx, choice.Config{
		Mode: n.Mode, Log: log,
		Bridge: bridge.Config{DB: r.db, Network: r.networks[0], Guard: guard,
			NoSourceGuard: n.SourceGuard == config.Disabled, NoForwardGuard: n.ForwardGuard == config.Disabled,
			ConnectionsPerPod: n.ConnectionsPerPod, NoForeignRules: n.ForeignRules == config.Disabled, DNS: r.names.addresses, OwnPorts: bridgePorts(r.ownPorts()), Log: log},
		CNI: cni.Config{DB: r.db, ConfDir: n.CNI.ConfDir, BinDirs: n.CNI.BinDirs, CacheDir: filepath.Join(r.Config.RunDir, "cni"), Log: log},
	})
}

// close closes the stores; the executor and its containers go on.
func (r *runtimeRole) close() error {
	var errs []error
	if r.executor != nil {
		errs = append(errs, r.executor.Close())
	}
	if r.network != nil {
		r.network.Close()
	}
	r.policies.close()
	if r.images != nil {
		errs = append(errs, r.images.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	return errors.Join(errs...)
}

// remove removes the pods and their logs, the executor, and the network.
func (r *runtimeRole) remove(ctx context.Context) error {
	var errs []error
	if r.server != nil {
		logs := r.server.LogDirectories()
		errs = append(errs, r.server.RemoveAll(ctx))
		links := loglinks.New(loglinks.Config{Dir: r.Config.Agent.ContainerLogsDir, LogsDir: r.Config.Agent.PodLogsDir})
		for _, dir := range logs {
			if filepath.Dir(dir) == filepath.Clean(r.Config.Agent.PodLogsDir) {
				errs = append(errs, tree.Remove(ctx, dir), removeLinks(links, dir))
			}
		}
	}
	if r.executor != nil {
		errs = append(errs, r.executor.Shutdown(ctx, protocol.ShutdownRequest{Kill: true}))
	}
	if r.network != nil {
		errs = append(errs, r.network.Remove(ctx))
	}
	return errors.Join(errs...)
}

func handlers(list []v1alpha1.RuntimeHandler) (hs []runtime.Handler) {
	for _, h := range list {
		hs = append(hs, runtime.Handler{Name: h.Name, Path: h.Path, Root: h.Root})
	}
	return hs
}

// logRotation is the configured one, or the default of a process with or without an agent.
func logRotation(c v1alpha1.LogRotation, withAgent bool) (r life.LogRotation, err error) {
	size := c.MaxSize
	if size == "" && withAgent {
		size = config.DefaultLogSize
	}
	if size == "" {
		return r, nil
	}
	r.MaxFiles = int(c.MaxFiles)
	r.MaxBytes, err = config.ParseSize(size)
	return r, err
}

// removeLinks removes the links to the logs of a pod, whose directory is NAMESPACE_NAME_UID.
func removeLinks(links *loglinks.Links, dir string) error {
	words := strings.Split(filepath.Base(dir), "_")
	if len(words) != 3 {
		return nil
	}
	return links.RemovePod(words[0], words[1], dir)
}

// stallTimeout is the time as the image store takes it, where 0 is a default and less is never.
func stallTimeout(c v1alpha1.Runtime) time.Duration {
	if t := c.ImagePullProgressTimeout.Duration; t > 0 {
		return t
	}
	return -1
}
