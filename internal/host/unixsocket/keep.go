package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/coalesce"
	"monopod.dev/monopod/internal/kit/wait"
)

const (
	// soon is how long to wait before a socket is tried again that could not be made.
	soon = time.Second
	// slowly is about how often it is looked whether the socket is still there.
	slowly = 5 * time.Second
)

// Config configures Keep.
type Config struct {
	// Path is the socket's; see Check. Its folder is made, with mode 0750, where it is missing.
	Path string
	// Serve accepts connections until the listener is closed. It is called anew, in a goroutine of its own, for each socket that is made.
	Serve func(net.Listener)
	// Tell is told why the socket is not served, and nil when it is: at first, and when that changes.
	Tell func(error)
}

// Keep has the socket served until ctx ends, and makes it again when somebody has removed it. What a dead program has left is replaced; as
// long as another program serves the path, or something else is there, that is told, and it is tried again. At the end the socket is closed
// and, where it is still this one, removed. Keep returns when every Serve has.
func Keep(ctx context.Context, cfg Config) {
	k := keeper{Config: cfg}
	told := "not yet"
	for {
		err := k.open(ctx)
		if ctx.Err() != nil {
			break
		}
		now := ""
		pause := coalesce.Align(slowly)
		if err != nil {
			now, pause = err.Error(), soon
		}
		if now != told {
			told = now
			cfg.Tell(err)
		}
		if wait.For(ctx, pause) != nil {
			break
		}
	}
	k.close()
}

type keeper struct {
	Config
	listener *net.UnixListener // nil: there is none yet
	id       ID                // the listener's socket
	serving  sync.WaitGroup
}

// open returns nil when the socket is ours. The error says who is in the way, or what failed.
func (k *keeper) open(ctx context.Context) error {
	if err := Check(k.Path); err != nil {
		return err
	}
	id, mode, err := At(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(k.Path), 0o750); err != nil { // kubelets' mode
			return err
		}
	case err != nil:
		return err
	case k.listener != nil && id == k.id:
		return nil
	case mode != unix.S_IFSOCK:
		return fmt.Errorf("%s: this is no socket: remove it", k.Path)
	case Served(ctx, k.Path):
		return fmt.Errorf("%s: another program serves this socket: stop it, or choose another path", k.Path)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if k.listener == nil {
		k.sweep()
	}
	return k.make(ctx)
}

// sweep removes what a process that was killed has left under a hidden name.
func (k *keeper) sweep() {
	dir := filepath.Dir(k.Path)
	entries, _ := os.ReadDir(dir) // what cannot be read is left
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, mode, err := At(path); err == nil && mode == unix.S_IFSOCK && strings.HasPrefix(e.Name(), HiddenPrefix) {
			os.Remove(path)
		}
	}
}

func (k *keeper) make(ctx context.Context) error {
	listener, hidden, id, err := Hidden(ctx, filepath.Dir(k.Path))
	if err != nil {
		return err
	}
	if err := Show(hidden, k.Path); err != nil {
		listener.Close()
		return err
	}
	if k.listener != nil {
		k.listener.Close()
	}
	k.listener, k.id = listener, id
	k.serving.Go(func() { k.Serve(listener) })
	return nil
}

func (k *keeper) close() {
	if k.listener == nil {
		return
	}
	if id, _, err := At(k.Path); err == nil && id == k.id {
		os.Remove(k.Path) // a socket that nobody serves would only hold up those who find it
	}
	k.listener.Close()
	k.serving.Wait()
}
