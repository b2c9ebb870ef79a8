// Package logind has pods end before systemd stops the machine: it holds a delay inhibitor of systemd-logind
// (https://systemd.io/INHIBITOR_LOCKS) for as long as it runs, and lets go of it when the pods have ended.
//
// It guarantees that a shutdown is never held up for longer than logind's InhibitDelayMaxSec, that a bus or a logind that is away is waited for, and that
// nobody but logind begins a shutdown: a signal only makes it ask. It changes nothing of logind's configuration.
package logind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

// The names of logind on the bus (org.freedesktop.login1(5)).
const (
	service  = "org.freedesktop.login1"
	object   = dbus.ObjectPath("/org/freedesktop/login1")
	manager  = service + ".Manager"
	prepare  = "PrepareForShutdown"
	property = "org.freedesktop.DBus.Properties.Get"
)

// Again and again it is tried to reach a logind that is away: soon, and less often when it was away for long.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// Node ends its pods.
type Node interface {
	// Prepare ends the pods within limit, and returns when they have ended, or ctx ends.
	Prepare(ctx context.Context, limit time.Duration)
	// Cancel tells that the machine goes on: it does not stop, or not any more.
	Cancel()
	// Wants is how long the pods have when nobody shortens it.
	Wants() time.Duration
}

// Config configures Run.
type Config struct {
	// Address is the bus's; empty: the system bus.
	Address string
	Node    Node
	Log     *slog.Logger
}

// Run watches logind until ctx ends.
func Run(ctx context.Context, cfg Config) {
	w := &watcher{Config: cfg}
	defer w.release()
	retry := retryFirst
	for told := false; ; {
		began := time.Now()
		err := w.session(ctx)
		if w.met {
			told, retry, w.met = false, retryFirst, false
		}
		if ctx.Err() != nil {
			w.await()
			return
		}
		if !told {
			cfg.Log.Warn("systemd-logind can't be watched; pods are not told when the machine stops, unless 'monopod drain' is run before; it is tried again", "error", err)
			told = true
		}
		cfg.Log.Debug("systemd-logind can't be watched", "error", err, "in", retry, "after", time.Since(began))
		for again := time.After(retry); again != nil; {
			select {
			case <-ctx.Done():
				again = nil
			case <-w.preparing:
				w.prepared()
			case <-again:
				again = nil
			}
		}
		retry = min(2*retry, retryMax)
	}
}

// watcher is what outlives a connection. All of it is of Run's goroutine.
type watcher struct {
	Config
	// lock is the inhibitor, which logind sees closed; nil: none is held.
	lock *os.File
	// preparing is closed when the pods have ended, stop says that they need not any more; nil: they are not asked to.
	preparing chan struct{}
	stop      context.CancelFunc
	// warned is the longest delay of logind's that was found too short.
	warned time.Duration
	// met: logind has answered in this session.
	met bool
}

// session watches over one connection, and says why it has ended.
func (w *watcher) session(ctx context.Context) error {
	conn, err := w.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	match := []dbus.MatchOption{dbus.WithMatchSender(service), dbus.WithMatchInterface(manager), dbus.WithMatchMember(prepare), dbus.WithMatchObjectPath(object)}
	if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
		return fmt.Errorf("watch signals of systemd-logind: %w", err)
	}
	if err := w.look(ctx, conn); err != nil {
		return err
	}
	w.met = true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s, ok := <-signals:
			if !ok {
				return errors.New("the message bus has closed the connection")
			}
			// The bus lets anybody send us a signal of this name.
			if s.Name == manager+"."+prepare {
				if err := w.look(ctx, conn); err != nil {
					return err
				}
			}
		case <-w.preparing:
			w.prepared()
		}
	}
}

func (w *watcher) dial(ctx context.Context) (*dbus.Conn, error) {
	var conn *dbus.Conn
	var err error
	if w.Address == "" {
		conn, err = dbus.ConnectSystemBus(dbus.WithContext(ctx))
	} else {
		conn, err = dbus.Connect(w.Address, dbus.WithContext(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the system's message bus: %w", err)
	}
	return conn, nil
}

// look asks logind whether the machine is about to stop, and does what follows: the pods end, or an inhibitor is held.
func (w *watcher) look(ctx context.Context, conn *dbus.Conn) error {
	stopping, err := get[bool](ctx, conn, "PreparingForShutdown")
	if err != nil {
		return err
	}
	micros, err := get[uint64](ctx, conn, "InhibitDelayMaxUSec")
	if err != nil {
		return err
	}
	limit := time.Duration(min(micros, uint64(24*time.Hour/time.Microsecond))) * time.Microsecond
	switch {
	case stopping && w.preparing == nil:
		done := make(chan struct{})
		preparing, stop := context.WithCancel(ctx)
		w.preparing, w.stop = done, stop
		go func() {
			defer close(done)
			w.Node.Prepare(preparing, limit)
		}()
		return nil
	case stopping:
		return nil
	case w.preparing != nil:
		w.await()
		fallthrough
	default:
		w.Node.Cancel()
	}
	w.warn(limit)
	return w.hold(ctx, conn)
}

// warn says that logind grants less than the pods are to have.
func (w *watcher) warn(limit time.Duration) {
	if wants := w.Node.Wants(); limit < wants && limit != w.warned {
		w.warned = limit
		w.Log.Warn("systemd-logind holds up a shutdown for less time than the pods are to have: each of their turns is shortened. Set InhibitDelayMaxSec of the "+
			"section [Login] in a file of /etc/systemd/logind.conf.d and run 'systemctl kill -s HUP systemd-logind'", "inhibitDelayMaxSec", limit, "shutdownGracePeriod", wants)
	}
}

// hold takes an inhibitor in the place of the one that is held.
func (w *watcher) hold(ctx context.Context, conn *dbus.Conn) error {
	if !conn.SupportsUnixFDs() {
		return errors.New("the message bus passes no file descriptors")
	}
	var fd dbus.UnixFD
	call := conn.Object(service, object).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "monopod", "pods end before the machine stops", "delay")
	if err := call.Store(&fd); err != nil {
		return fmt.Errorf("inhibitor of systemd-logind: %w", err)
	}
	level := slog.LevelInfo
	if w.lock != nil { // which is no news
		level = slog.LevelDebug
	}
	w.release()
	w.lock = os.NewFile(uintptr(fd), "inhibitor")
	w.Log.Log(ctx, level, "systemd-logind waits for the pods when the machine stops")
	return nil
}

// prepared lets the machine stop.
func (w *watcher) prepared() {
	w.await()
	w.release()
}

// await ends what Prepare does.
func (w *watcher) await() {
	if w.preparing != nil {
		w.stop()
		<-w.preparing
		w.preparing, w.stop = nil, nil
	}
}

func (w *watcher) release() {
	if w.lock != nil {
		w.lock.Close()
		w.lock = nil
	}
}

// get reads a property of logind's.
func get[T any](ctx context.Context, conn *dbus.Conn, name string) (value T, err error) {
	var v dbus.Variant
	if err := conn.Object(service, object).CallWithContext(ctx, property, 0, manager, name).Store(&v); err != nil {
		return value, fmt.Errorf("%s of systemd-logind: %w", name, err)
	}
	if err := v.Store(&value); err != nil {
		return value, fmt.Errorf("%s of systemd-logind is %s: %w", name, v, err)
	}
	return value, nil
}
