//go:build cgo

package calls

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/podinit"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// init serves Init. A caller that goes away does not end it: the caller's next attempt finds the pod's init.
func (cs *Calls) init(ctx context.Context, req protocol.InitRequest) (protocol.InitResponse, error) {
	if err := checkInit(req); err != nil {
		return protocol.InitResponse{}, fmt.Errorf("%w: pod init %q: %w", errdefs.ErrInvalidArgument, req.ID, err)
	}
	c, release, err := cs.cfg.Table.Reserve(ctx, req.ID)
	if err != nil {
		return protocol.InitResponse{}, err
	}
	defer release()
	switch rec := c.Record(); {
	case rec.Stage == record.StageDeleting:
		return protocol.InitResponse{}, fmt.Errorf("%w: pod init %s is half deleted; delete it again", errdefs.ErrFailedPrecondition, req.ID)
	case !rec.CreatedAt.IsZero() && (rec.Kind != protocol.KindPodInit || rec.Pin != req.Pin):
		return protocol.InitResponse{}, fmt.Errorf("%w: %s is there (kind %q, bundle %q, pin %q), and is not a pod init with the pin %q",
			errdefs.ErrAlreadyExists, req.ID, rec.Kind, rec.Bundle, rec.Pin, req.Pin)
	case rec.Exit != nil:
		return protocol.InitResponse{}, fmt.Errorf("%w: pod init %s has ended (code %d, %s); delete it first", errdefs.ErrFailedPrecondition, req.ID, rec.Exit.Code, rec.Exit.Reason)
	case !rec.CreatedAt.IsZero():
		return protocol.InitResponse{PID: rec.PID}, nil
	}
	pid, err := cs.makeInit(context.WithoutCancel(ctx), c, req)
	if err != nil {
		cs.cfg.Table.Forget(c)
		return protocol.InitResponse{}, fmt.Errorf("pod init %s: %w", req.ID, err)
	}
	return protocol.InitResponse{PID: pid}, nil
}

func checkInit(req protocol.InitRequest) error {
	if !validID(req.ID) {
		return errors.New("want an id of up to 128 letters, digits and _ + . -, the first a letter or digit")
	}
	if err := bundle.CheckCgroupsPath(req.CgroupPath); err != nil {
		return fmt.Errorf("cgroupPath is %w", err)
	}
	for name, path := range map[string]string{"userNamespace": req.UserNamespace, "networkNamespace": req.NetworkNamespace} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%s is %q, want an absolute path", name, path)
		}
	}
	if !filepath.IsAbs(req.Pin) {
		return fmt.Errorf("pin is %q, want an absolute path", req.Pin)
	}
	if st, err := os.Lstat(req.Pin); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("pin %s is not an existing regular file (%v)", req.Pin, err)
	}
	return nil
}

// makeInit makes the init and pins its namespace. On an error nothing is left.
func (cs *Calls) makeInit(ctx context.Context, c *table.Container, req protocol.InitRequest) (pid int, err error) {
	scope, err := group.TakeScope(&req.CgroupPath)
	if err != nil {
		return 0, err
	}
	cm, err := manager.New(&cgroups.Cgroup{Path: req.CgroupPath, Resources: &cgroups.Resources{}})
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", req.CgroupPath, err)
	}
	if err := group.Empty(cm); err != nil {
		return 0, err
	}
	rec := record.Record{BootID: cs.cfg.BootID, ID: req.ID, Kind: protocol.KindPodInit, Pin: req.Pin, Stage: record.StageCreating, Cgroups: cm.GetPaths()}
	if scope != nil {
		rec.Scope = scope.String()
	}
	// From here on a successor of this worker finds what it has to undo.
	if err := cs.cfg.Table.Write(c, func(r *record.Record) { *r = rec }); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cs.cfg.Life.Undo(ctx, rec))
		}
	}()
	closeScope, err := group.OpenScope(scope, nil, false, cs.cfg.Log)
	if err != nil {
		return 0, err
	}
	defer closeScope()
	const nobody = -1
	if err := cm.Apply(nobody); err != nil { // it makes the directories
		return 0, fmt.Errorf("cgroup %s: %w", req.CgroupPath, err)
	}
	if rec.PID, err = startInit(ctx, req, rec.Cgroups); err != nil {
		return 0, err
	}
	if err := cs.cfg.Life.Hold(ctx, &rec, nil); err != nil {
		return 0, err
	}
	if err := failpoint.Hit("executor/worker/init/held"); err != nil {
		return 0, err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/pid", rec.PID), req.Pin, "", unix.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("pin the PID namespace at %s: %w", req.Pin, err)
	}
	if err := failpoint.Hit("executor/worker/init/pinned"); err != nil {
		return 0, err
	}
	pidfd, err := proc.OpenFD(rec.PID) // our unreaped child: the pid is its own
	if err != nil {
		return 0, err
	}
	now := time.Now().UTC()
	rec.Stage, rec.CreatedAt, rec.StartedAt = record.StageRunning, now, now
	return rec.PID, cs.cfg.Life.Settle(c, rec, pidfd, os.Getpid(), nil, nil)
}

// startInit starts the process in its cgroups.
func startInit(ctx context.Context, req protocol.InitRequest, dirs map[string]string) (pid int, err error) {
	cfg := podinit.Config{CgroupFD: -1, Enter: func(pid int) error { return enterTasks(dirs, pid) }}
	if req.NetworkNamespace != "" {
		cfg.Join = append(cfg.Join, podinit.Namespace{Kind: "net", Path: req.NetworkNamespace})
	}
	if req.UserNamespace != "" {
		cfg.Join = append(cfg.Join, podinit.Namespace{Kind: "user", Path: req.UserNamespace})
	}
	if dir := dirs[""]; dir != "" {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			cfg.CgroupFD = fd
		} else if !errors.Is(err, fs.ErrNotExist) || cgroups.IsCgroup2UnifiedMode() {
			return 0, &os.PathError{Op: "open", Path: dir, Err: err}
		}
	}
	return podinit.Start(ctx, cfg)
}

// enterTasks moves a single-threaded process to v1 cgroups. Through "tasks" that takes no lock on all threads of the
// machine, for which through "cgroup.procs" it waits milliseconds a hierarchy.
func enterTasks(dirs map[string]string, pid int) error {
	for controller, dir := range dirs {
		if controller == "" {
			continue // v2: it was born there
		}
		path := filepath.Join(dir, "tasks")
		err := os.WriteFile(path, []byte(strconv.Itoa(pid)), 0)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && controller == "name=systemd") { // which libcontainer takes for optional
			return fmt.Errorf("enter the cgroup: %w", err)
		}
	}
	return nil
}
