package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/host/unixsocket"
	"monopod.dev/monopod/internal/kit/wait"
)

// maxRegistration bounds what a Register may weigh.
const maxRegistration = 64 << 10

// door is the registration socket.
type door struct {
	*runner
	path     string
	server   *grpc.Server
	listener *net.UnixListener // nil: there is none yet
	at       file              // the listener's socket
	opened   bool              // it has been visible once
}

// serveSocket keeps kubelet.sock there, and served, until ctx ends.
func (r *runner) serveSocket() {
	d := &door{runner: r, path: filepath.Join(r.cfg.Dir, kubeletSocket)}
	d.server = grpc.NewServer(grpc.MaxRecvMsgSize(maxRegistration), grpc.MaxConcurrentStreams(64), grpc.ConnectionTimeout(r.pace.answer),
		grpc.WaitForHandlers(true))
	v1beta1.RegisterRegistrationServer(d.server, registration{runner: r})
	follow(r.ctx, func(path string) bool { return path == d.path }, d.look, func(err error) {
		r.trouble("folder", r.cfg.Dir, words(err))
	})
	if at, _, err := fileAt(d.path); err == nil && d.listener != nil && at == d.at {
		os.Remove(d.path) // a socket that nobody serves would only hold up the plugins that find it
	}
	d.server.Stop()
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// look makes the socket when it is not there.
func (d *door) look() sight {
	err := d.open()
	d.trouble("socket", d.path, words(err))
	if err != nil {
		return sight{watch: []string{d.cfg.Dir}, again: soon}
	}
	return sight{watch: []string{d.cfg.Dir}}
}

// open returns nil when the socket is ours. The error says who is in the way, or what failed.
func (d *door) open() error {
	if err := os.MkdirAll(d.cfg.Dir, 0o750); err != nil { // the kubelet's mode
		return fmt.Errorf("device plugins cannot register: %w", err)
	}
	at, mode, err := fileAt(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("device plugins cannot register: %w", err)
	case d.listener != nil && at == d.at:
		return nil
	case mode != unix.S_IFSOCK:
		return errors.New("device plugins cannot register: this is no socket: remove it")
	case unixsocket.Served(d.ctx, d.path):
		return errors.New("device plugins register with another program, which serves this socket (a kubelet?): stop it, or give this node another folder")
	}
	var left []leftover
	if !d.opened {
		left = d.leftovers()
	}
	if err := d.make(); err != nil {
		return fmt.Errorf("device plugins cannot register: %w", err)
	}
	d.log.Info("device plugins can register", "socket", d.path)
	if !d.opened {
		d.opened = true
		d.wg.Go(func() { d.wake(left) })
	}
	return nil
}

// make serves a new socket before it has the name that plugins know.
func (d *door) make() error {
	listener, hidden, at, err := unixsocket.Hidden(d.ctx, d.cfg.Dir)
	if err != nil {
		return err
	}
	old := d.listener
	d.listener, d.at = listener, at
	d.wg.Go(func() { _ = d.server.Serve(listener) }) // it ends with the listener
	if old != nil {
		old.Close()
	}
	return unixsocket.Show(hidden, d.path)
}

// leftover is a socket that was in the folder before ours.
type leftover struct {
	path string
	at   file
}

// leftovers lists them, and removes what a process of ours that was killed has left.
func (d *door) leftovers() []leftover {
	entries, _ := os.ReadDir(d.cfg.Dir) // if it cannot be read, no plugin is woken: they register by themselves, or are started again
	var left []leftover
	for _, e := range entries {
		path := filepath.Join(d.cfg.Dir, e.Name())
		at, mode, err := fileAt(path)
		switch {
		case err != nil || mode != unix.S_IFSOCK || path == d.path:
		case strings.HasPrefix(e.Name(), hiddenPrefix):
			os.Remove(path)
		default:
			left = append(left, leftover{path, at})
		}
	}
	return left
}

// wake removes the sockets of device plugins that live and have not registered a while after kubelet.sock was created. Kubelets remove all
// sockets when they start, and some plugins wait for that, not for kubelet.sock. Those that nobody serves go with them: a plugin whose socket
// has another name each time it starts leaves one whenever it is killed.
func (d *door) wake(left []leftover) {
	if len(left) == 0 || wait.For(d.ctx, d.pace.silence) != nil {
		return
	}
	for _, l := range left {
		if d.known(l.path) {
			continue
		}
		is, dead := isDevicePlugin(d.ctx, l.path, d.pace.active)
		if !is && !dead || d.ctx.Err() != nil {
			continue
		}
		if at, _, err := fileAt(l.path); err != nil || at != l.at || d.known(l.path) {
			continue
		}
		os.Remove(l.path)
		if dead {
			d.log.Info("socket was removed, for nobody serves it", "socket", l.path)
			continue
		}
		d.log.Info("device plugin's socket was removed, for it has not registered again", "socket", l.path)
	}
}

// known says whether a socket has registered.
func (s *Source) known(socket string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.plugins {
		if p.live != nil && p.live.socket == socket || p.next != nil && p.next.socket == socket {
			return true
		}
	}
	return false
}

// isDevicePlugin asks who serves a socket; dead: nobody does.
func isDevicePlugin(ctx context.Context, path string, most time.Duration) (is, dead bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	conn, err := connect(ctx, path)
	if err != nil {
		return false, errors.Is(err, unix.ECONNREFUSED)
	}
	defer conn.close()
	_, err = optionsOf(ctx, v1beta1.NewDevicePluginClient(conn), nil)
	return err == nil, false
}
