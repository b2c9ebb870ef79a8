package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/launch"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/netpolicy"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/choice"
	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/state"
)

// runtimeState is the state file of the runtime, by which the bridge is marked.
const runtimeState = "runtime.db"

// runtimeRole is the runtime with what it stands on.
type runtimeRole struct {
	db       *state.DB
	images   *image.Store
	network  *choice.Network
	policies *netpolicy.Role // nil: nobody here enforces network policies
	executor *client.Client
	behind   string // why the executor that runs is not the installed one; empty: it is
	server   *runtime.Server
}

// newRuntime opens the stores, starts or finds the executor, and recovers what an earlier run has left.
//
// withAgent says that this process is the node's kubelet too, so that nobody else rotates logs. enforces says that it will know an API server, whose network
// policies are to hold.
func (o *Options) newRuntime(ctx context.Context, withAgent, enforces bool) (_ *runtimeRole, err error) {
	c := o.Config
	r := &runtimeRole{}
	defer func() {
		if err != nil && o.Ephemeral {
			err = errors.Join(err, o.removeAll(r))
		}
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.db, err = o.openState(runtimeState); err != nil {
		return nil, err
	}
	var ranges []netip.Prefix
	for _, cidr := range config.PodRanges(c.Network) {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	streams, err := netip.ParseAddr(c.Runtime.Streaming.Address)
	if err != nil {
		return nil, err
	}
	// What can be refused is refused before anything is made.
	binary, err := o.executorBinary()
	if err != nil {
		return nil, err
	}
	rotation, err := logRotation(c.Runtime.LogRotation, withAgent)
	if err != nil {
		return nil, err
	}
	var guard network.Guard
	if r.policies, guard, err = o.newPolicies(ctx, enforces); err != nil {
		return nil, err
	}
	socket := filepath.Join(c.RunDir, "executor.sock")
	start, startCtx := errgroup.WithContext(ctx)
	start.Go(func() (err error) {
		if r.behind, err = o.ensureExecutor(startCtx, binary, socket); err == nil {
			r.executor = client.New(client.Config{Socket: socket, Log: o.Log.With("role", "executor")}) // it is ended if something else fails
		}
		return err
	})
	start.Go(func() (err error) {
		r.images, err = image.Open(startCtx, image.Config{Root: filepath.Join(c.DataDir, "images"),
			RegistryConfigDir: c.Runtime.RegistryConfigDir, StallTimeout: stallTimeout(c.Runtime), Log: o.Log.With("role", "image")})
		return err
	})
	start.Go(func() (err error) {
		r.network, err = o.newNetwork(startCtx, bridge.Config{DB: r.db, Bridge: c.Network.Bridge, PodCIDRs: ranges, Guard: guard,
			NoSourceGuard: c.Network.SourceGuard == config.Disabled, NoForwardGuard: c.Network.ForwardGuard == config.Disabled,
			ConnectionsPerPod: c.Network.ConnectionsPerPod, NoForeignRules: c.Network.ForeignRules == config.Disabled, DNS: o.dns, OwnPorts: bridgePorts(o.ownPorts()),
			Table: c.Network.Bridge, Log: o.Log.With("role", "network")})
		return err
	})
	if err := start.Wait(); err != nil {
		return nil, err
	}
	if err := r.network.Start(ctx); err != nil {
		return nil, err
	}
	r.server, err = runtime.New(ctx, runtime.Config{
		Socket: c.Runtime.Socket, DataDir: c.DataDir, RunDir: c.RunDir, CgroupRoot: c.CgroupRoot,
		CDISpecDirs: c.Devices.CDISpecDirs, Images: r.images, Network: r.network, Executor: r.executor, DB: r.db,
		Streaming:    runtime.Streaming{Address: streams, Port: uint16(*c.Runtime.Streaming.Port), Idle: c.Runtime.Streaming.IdleTimeout.Duration},
		CgroupDriver: c.Runtime.CgroupDriver, LogRotation: rotation, SELinux: container.SELinuxMode(c.Runtime.SELinux), DefaultMaskedPaths: c.Runtime.DefaultMaskedPaths,
		IgnoreCDIAnnotations: c.Runtime.IgnoreCDIAnnotations, PrivilegedPorts: c.Runtime.PrivilegedPorts, Handlers: handlers(c.Runtime.Handlers), Version: o.Version, ExecutorBehind: r.behind, Log: o.Log.With("role", "runtime"),
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func handlers(list []v1alpha1.RuntimeHandler) (hs []runtime.Handler) {
	for _, h := range list {
		hs = append(hs, runtime.Handler{Name: h.Name, Path: h.Path, Root: h.Root})
	}
	return hs
}

// logRotation is the configured one, or the default of a process with or without an agent.
func logRotation(c v1alpha1.LogRotation, withAgent bool) (r container.LogRotation, err error) {
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

// ensureExecutor says why the executor that runs is not the installed one, if it is not.
func (o *Options) ensureExecutor(ctx context.Context, binary, socket string) (behind string, err error) {
	dir := o.executorDir()
	found, err := launch.Ensure(ctx, launch.Config{Binary: binary, Build: o.Version, Socket: socket, Dir: dir,
		CgroupPath: filepath.Join(o.Config.CgroupRoot, "executor"), LogFile: filepath.Join(dir, "executor.log")})
	if found.Behind != "" {
		o.Log.Warn("the executor is not the installed one", "role", "executor", "why", found.Behind)
	}
	if found.Former != "" {
		o.Log.Info("the executor goes on as the installed program, under its containers", "role", "executor", "build", found.Build, "before", found.Former, "took", found.Took.Round(time.Millisecond))
	}
	return found.Behind, err
}

func (o *Options) executorDir() string { return filepath.Join(o.Config.RunDir, "executor") }

// executorBinary is the configured path, else the file beside our own, else the one in $PATH.
func (o *Options) executorBinary() (string, error) {
	const name = "monopod-executor"
	if path := o.Config.Runtime.Executor; path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("--executor (runtime.executor) names %s, which is not a file: build it with `make build`", path)
		}
		return path, nil
	}
	self, err := os.Executable()
	if err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); isFile(beside) {
			return beside, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside %s nor in $PATH: build it with `make build`, or name it with --executor", name, self)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func (r *runtimeRole) run(ctx context.Context) error { return r.server.Serve(ctx) }

// close closes the stores; the executor and its containers go on.
func (r *runtimeRole) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.executor != nil {
		errs = append(errs, r.executor.Close())
	}
	if r.network != nil {
		r.network.Close()
	}
	if r.policies != nil {
		r.policies.Close()
	}
	if r.images != nil {
		errs = append(errs, r.images.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	return errors.Join(errs...)
}

// removeAll ends an ephemeral node: pods, executor, network, the addresses of the DNS, and the cgroups.
func (o *Options) removeAll(r *runtimeRole) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	var errs []error
	if r.server != nil {
		logs := r.server.LogDirectories()
		errs = append(errs, r.server.RemoveAll(ctx))
		links := loglinks.New(loglinks.Config{Dir: o.Config.Agent.ContainerLogsDir, LogsDir: o.Config.Agent.PodLogsDir})
		for _, dir := range logs {
			if filepath.Dir(dir) == filepath.Clean(o.Config.Agent.PodLogsDir) {
				errs = append(errs, tree.Remove(ctx, dir), removeLinks(links, dir))
			}
		}
	}
	if r.executor != nil {
		errs = append(errs, r.executor.Shutdown(ctx, protocol.ShutdownRequest{Kill: true}))
	}
	errs = append(errs, o.removeServices(ctx))
	if r.network != nil {
		errs = append(errs, r.network.Remove(ctx))
	}
	errs = append(errs, o.removePolicies(ctx), o.removeDNS(ctx), o.removeCgroups())
	return errors.Join(errs...)
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
