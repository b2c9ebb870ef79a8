package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/wait"
)

// endIdle ends the executor that serves the socket if no container runs in it; an error says why it has not ended. It needs no protocol: a keeper of any version ends on SIGTERM when
// nothing that it holds runs, and overlooks it otherwise.
func endIdle(ctx context.Context, cfg Config) error {
	patience := cfg.Patience
	if patience == 0 {
		patience = endPatience
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keeper, err := awaitKeeper(bounded, cfg.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its socket is gone, and so is it
	}
	if err != nil {
		return err
	}
	defer keeper.Close()
	if err := terminate(bounded, keeper); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("end the keeper of %s (process %d): %w", cfg.Socket, keeper.PID(), err)
		}
		return fmt.Errorf("its keeper (process %d) has not ended within %v of SIGTERM, as one does in which no container runs", keeper.PID(), patience)
	}
	return failpoint.Hit("executor/launch/ended")
}

// terminatePause is how long to wait for a keeper's end before it is sent SIGTERM once more: one that has just become another program overlooks the signal, whatever it holds.
const terminatePause = time.Second

// terminate sends SIGTERM to the keeper until it has ended, or ctx has.
func terminate(ctx context.Context, keeper *proc.FD) error {
	for {
		if err := keeper.Signal(unix.SIGTERM); err != nil {
			return err
		}
		if err := failpoint.Hit("executor/launch/terminated"); err != nil {
			return err
		}
		turn, cancel := context.WithTimeout(ctx, terminatePause)
		err := keeper.Wait(turn)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// lookPause is how long to wait for a keeper that is not found: of what a process holds while it becomes another program, which a worker does whose keeper has died, the kernel tells
// nothing, nor when that is over.
const lookPause = 10 * time.Millisecond

// awaitKeeper is keeperOf, again and again until ctx ends.
func awaitKeeper(ctx context.Context, socket string) (*proc.FD, error) {
	for {
		keeper, err := keeperOf(socket)
		if !errdefs.IsNotFound(err) {
			return keeper, err
		}
		if wait.For(ctx, lookPause) != nil {
			return nil, err
		}
	}
}

// keeperName is the name that a keeper of any version gives itself, once SIGTERM does not end it under containers any more. Before that it is none: the worker of one that
// has died bears another name, and so does a program that has just been executed.
const keeperName = "monopod-keeper"

// keeperOf finds the keeper that listens at a socket. Who made the socket says less: a keeper that has died has left it to its worker.
func keeperOf(socket string) (*proc.FD, error) {
	inodes, err := listeners(socket)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !holds(pid, inodes) {
			continue
		}
		p, err := proc.OpenFD(pid)
		if err != nil {
			continue // it has ended since
		}
		if st, err := proc.ReadStat(pid); err == nil && st.Comm == keeperName && holds(pid, inodes) && !p.Ended() { // the last two: the number is still that process's
			return p, nil
		}
		p.Close()
	}
	return nil, fmt.Errorf("no keeper is found that listens at %s: %w", socket, errdefs.ErrNotFound)
}

// listeners are the kernel's names of the sockets that are bound to a path, and listen.
func listeners(path string) (map[string]bool, error) {
	want, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const acceptsConnections = 1 << 16 // __SO_ACCEPTCON of linux/net.h
	found := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.Fields(lines.Text())
		_, bound, ok := strings.Cut(lines.Text(), " /")
		if !ok || len(fields) < 8 || filepath.Base(bound) != filepath.Base(path) {
			continue
		}
		flags, err := strconv.ParseUint(fields[3], 16, 64)
		if err != nil || flags&acceptsConnections == 0 {
			continue
		}
		if st, err := os.Stat("/" + bound); err == nil && os.SameFile(st, want) {
			found["socket:["+fields[6]+"]"] = true
		}
	}
	return found, lines.Err()
}

// holds says whether a process has one of the sockets open.
func holds(pid int, sockets map[string]bool) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && sockets[to] {
			return true
		}
	}
	return false
}
