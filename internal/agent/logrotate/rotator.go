package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/grpc"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/coalesce"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/wait"
)

// period is how often logs are looked at: the kubelet's containerLogMonitorInterval by default.
const period = 10 * time.Second

// callTime bounds a call of the runtime.
const callTime = 15 * time.Second

// Runtime is what is asked of the runtime. cri.Client is one.
type Runtime interface {
	ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error)
	ContainerStatus(context.Context, *cri.ContainerStatusRequest, ...grpc.CallOption) (*cri.ContainerStatusResponse, error)
	ReopenContainerLog(context.Context, *cri.ReopenContainerLogRequest, ...grpc.CallOption) (*cri.ReopenContainerLogResponse, error)
}

// Config configures a Rotator.
type Config struct {
	Runtime Runtime
	// Dir is the directory of all pods' logs.
	Dir string
	// MaxSize is the size in bytes from which on a log is rotated, MaxFiles how many files are kept of it, the present one included; at least 2.
	MaxSize  int64
	MaxFiles int
	Log      *slog.Logger
}

// Rotator rotates the logs of all running containers. It is for one goroutine.
type Rotator struct {
	cfg Config
	now func() time.Time
	// paths are the logs of the running containers, by the container; empty: it has none.
	paths map[ids.ContainerID]string
	// failed are the containers whose last rotation did not succeed, which was said.
	failed map[ids.ContainerID]bool
	// looked: a look has succeeded.
	looked bool
}

// New makes a rotator. Nothing is done before Run.
func New(cfg Config) *Rotator {
	return &Rotator{cfg: cfg, now: time.Now, paths: map[ids.ContainerID]string{}, failed: map[ids.ContainerID]bool{}}
}

// Run looks at the logs from time to time, until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("the logs can't be looked at", "error", err)
		}
		_ = wait.For(ctx, coalesce.Align(period)) // its end is the loop's
	}
}

// look rotates what has grown too large, and reopens what an earlier rotation has moved away and not reopened.
func (r *Rotator) look(ctx context.Context) error {
	listCtx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := r.cfg.Runtime.ListContainers(listCtx, &cri.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("list all containers: %w", err)
	}
	paths := map[ids.ContainerID]string{}
	for _, c := range resp.Containers {
		id := ids.ContainerID(c.Id)
		running := c.State == cri.ContainerState_CONTAINER_RUNNING
		// What has ended writes no more; a rotation of it may have been cut short before this agent was started.
		if _, ours := podspec.RefOf(c.Labels); !ours || !running && (r.looked || c.State != cri.ContainerState_CONTAINER_EXITED) {
			continue
		}
		path, known := r.paths[id]
		if !known {
			if path, err = r.path(ctx, id); err != nil {
				continue // it may be gone; else the next look asks again
			}
		}
		if path == "" {
			continue
		}
		if running {
			paths[id] = path
			err = r.check(ctx, id, path)
		} else {
			err = r.restore(path)
		}
		r.report(ctx, c, path, err)
	}
	for id := range r.failed {
		if _, here := paths[id]; !here {
			delete(r.failed, id)
		}
	}
	r.paths, r.looked = paths, true
	return nil
}

// report says once that a container's log is not rotated.
func (r *Rotator) report(ctx context.Context, c *cri.Container, path string, err error) {
	id := ids.ContainerID(c.Id)
	switch {
	case err == nil:
		delete(r.failed, id)
	case ctx.Err() == nil && !r.failed[id]:
		r.failed[id] = true
		ref, _ := podspec.RefOf(c.Labels)
		r.cfg.Log.Warn("the log of a container is not rotated; it is tried again", "pod", ref.Namespace+"/"+ref.Name, "container", c.GetMetadata().GetName(), "log", path, "error", err)
	}
}

func (r *Rotator) path(ctx context.Context, id ids.ContainerID) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := r.cfg.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(id)})
	if err != nil {
		return "", err
	}
	return resp.GetStatus().GetLogPath(), nil
}

func (r *Rotator) reopen(ctx context.Context, id ids.ContainerID) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := r.cfg.Runtime.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: string(id)}); err != nil {
		return fmt.Errorf("CRI ReopenContainerLog: %w", err)
	}
	return nil
}

// check looks at the log of a running container.
func (r *Rotator) check(ctx context.Context, id ids.ContainerID, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		// It was moved away, and nobody came to reopen it. Where the pod's folder has gone, so will the container.
		if root, _, err := folder(r.cfg.Dir, path); err == nil {
			root.Close()
			return r.reopen(ctx, id)
		}
		return nil
	}
	if err != nil || info.Size() < r.cfg.MaxSize {
		return err
	}
	return r.rotate(ctx, id, path)
}

// rotate moves the log of a running container away and has it reopened.
func (r *Rotator) rotate(ctx context.Context, id ids.ContainerID, path string) error {
	root, base, err := folder(r.cfg.Dir, path)
	if err != nil {
		return err
	}
	defer root.Close()
	all, err := names(root)
	if err != nil {
		return err
	}
	s := decide(base, all, r.cfg.MaxFiles, r.now())
	for _, name := range s.remove {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var errs []error
	for _, name := range s.compress {
		if err := compress(ctx, root, name); err != nil {
			// It stays as it is: that is no reason to let the log grow.
			errs = append(errs, fmt.Errorf("compress: %w", err))
		}
	}
	if err := root.Rename(base, s.name); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := r.reopen(ctx, id); err != nil {
		errs = append(errs, err)
		// It is written to under its new name, so it gets the old one back, unless the runtime has made another one in spite of its answer.
		if err := putBack(root, s.name, base); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restore gives the last file of a container that has ended its name back, where there is none of that name.
func (r *Rotator) restore(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, base, err := folder(r.cfg.Dir, path)
	if err != nil {
		return nil // the pod's folder has gone, or is not for us to touch
	}
	defer root.Close()
	all, err := names(root)
	if err != nil {
		return err
	}
	if name := newest(base, all); name != "" {
		if err := putBack(root, name, base); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
