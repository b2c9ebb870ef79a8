package logind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience only ends a test that has failed.
const patience = time.Minute

// bus is a real message bus of the test's own (Debian package dbus-daemon), with a logind of the test's.
type bus struct {
	t       *testing.T
	dir     string
	address string
	cmd     *exec.Cmd
}

func newBus(t *testing.T) *bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bus{t: t, dir: dir, address: "unix:path=" + filepath.Join(dir, "bus")}
	// Everybody may do everything, unlike on a system's bus.
	text := `<busconfig><type>custom</type><listen>` + b.address + `</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	if err := os.WriteFile(filepath.Join(dir, "bus.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	b.start()
	return b
}

func (b *bus) start() {
	b.t.Helper()
	b.cmd = exec.Command("dbus-daemon", "--config-file="+filepath.Join(b.dir, "bus.conf"), "--nofork", "--nopidfile", "--print-address")
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		b.t.Fatalf("dbus-daemon (Debian package dbus-daemon): %v", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it serves then
		b.t.Fatalf("dbus-daemon: %v", err)
	}
}

func (b *bus) stop() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

// restart ends the bus with all connections, and starts it again.
func (b *bus) restart() {
	b.t.Helper()
	b.stop()
	if err := os.Remove(filepath.Join(b.dir, "bus")); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	b.start()
}

func (b *bus) connect() *dbus.Conn {
	b.t.Helper()
	conn, err := dbus.Connect(b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return conn
}

// lock is an inhibitor: a pipe, whose one end logind has, and the other who asked for it.
type lock struct {
	ours   *os.File
	theirs int
}

// login is a logind.
type login struct {
	t    *testing.T
	conn *dbus.Conn

	mu       sync.Mutex // guards what follows
	stopping bool
	delay    time.Duration
	// asked are the requests for inhibitors.
	asked []string
	held  chan lock
}

func (b *bus) newLogin(delay time.Duration) *login { return b.loginThat(false, delay) }

// loginThat is a logind that stops the machine, or does not.
func (b *bus) loginThat(stops bool, delay time.Duration) *login {
	b.t.Helper()
	l := &login{t: b.t, conn: b.connect(), stopping: stops, delay: delay, held: make(chan lock, 16)}
	if err := errors.Join(l.conn.Export(l, object, manager), l.conn.Export((*properties)(l), object, "org.freedesktop.DBus.Properties")); err != nil {
		b.t.Fatal(err)
	}
	if reply, err := l.conn.RequestName(service, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		b.t.Fatalf("%v, %v", reply, err)
	}
	return l
}

// Inhibit is logind's method.
func (l *login) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return 0, dbus.NewError("org.freedesktop.login1.OperationInProgress", []any{"The operation inhibition has been requested for is already running"})
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.asked = append(l.asked, strings.Join([]string{what, who, why, mode}, ","))
	l.held <- lock{os.NewFile(uintptr(ends[0]), "inhibitor"), ends[1]}
	return dbus.UnixFD(ends[1]), nil
}

type properties login

// Get is the method of org.freedesktop.DBus.Properties.
func (p *properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch name {
	case "PreparingForShutdown":
		return dbus.MakeVariant(p.stopping), nil
	case "InhibitDelayMaxUSec":
		return dbus.MakeVariant(uint64(p.delay.Microseconds())), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
}

// stops tells that the machine stops, or does not.
func (l *login) stops(stops bool) {
	l.t.Helper()
	l.mu.Lock()
	l.stopping = stops
	l.mu.Unlock()
	if err := l.conn.Emit(object, manager+"."+prepare, stops); err != nil {
		l.t.Fatal(err)
	}
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// node is one whose pods end when the test says so.
type node struct {
	prepare chan time.Duration
	ended   chan struct{}
	cancel  chan struct{}
	stopped chan struct{}
}

func (n *node) Prepare(ctx context.Context, limit time.Duration) {
	n.prepare <- limit
	select {
	case <-n.ended:
	case <-ctx.Done():
		n.stopped <- struct{}{}
	}
}

func (n *node) Cancel() {
	select {
	case n.cancel <- struct{}{}:
	default:
	}
}

func (n *node) Wants() time.Duration { return 30 * time.Second }

// lines are those of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await waits for a line.
func (l lines) await(t *testing.T, part string) {
	t.Helper()
	for !strings.Contains(await(t, part, l), part) {
	}
}

// watched is a Run.
type watched struct {
	*node
	t    *testing.T
	log  lines
	stop func()
}

// holds waits for the next inhibitor, and returns what is read of it when nobody holds it any more.
func (w *watched) holds(l *login) (released <-chan error) {
	w.t.Helper()
	f := await(w.t, "an inhibitor", l.held)
	w.log.await(w.t, "systemd-logind waits")
	if err := unix.Close(f.theirs); err != nil { // it has arrived
		w.t.Error(err)
	}
	w.t.Cleanup(func() { f.ours.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := f.ours.Read(make([]byte, 1))
		done <- err
	}()
	return done
}

// run watches the bus until stop is called, or the test ends.
func (b *bus) run() *watched {
	n := &node{prepare: make(chan time.Duration, 1), ended: make(chan struct{}), cancel: make(chan struct{}, 1), stopped: make(chan struct{}, 1)}
	w := &watched{node: n, t: b.t, log: make(lines, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, Config{Address: b.address, Node: n, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	}()
	w.stop = sync.OnceFunc(func() { cancel(); await(b.t, "the end", done) })
	b.t.Cleanup(w.stop)
	return w
}

func isReleased(t *testing.T, released <-chan error) {
	t.Helper()
	if err := await(t, "the inhibitor to be let go of", released); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func isHeld(t *testing.T, released <-chan error) {
	t.Helper()
	select {
	case err := <-released:
		t.Errorf("the inhibitor is not held any more: %v", err)
	default:
	}
}

// TestAShutdown: logind waits until the pods have ended.
func TestAShutdown(t *testing.T) {
	b := newBus(t)
	l := b.newLogin(time.Minute)
	w := b.run()
	released := w.holds(l)
	if want := "shutdown,monopod,pods end before the machine stops,delay"; len(l.asked) != 1 || l.asked[0] != want {
		t.Errorf("asked for %q", l.asked)
	}
	l.stops(true)
	if limit := await(t, "the pods to be ended", w.prepare); limit != time.Minute {
		t.Errorf("within %s", limit)
	}
	isHeld(t, released)
	close(w.ended)
	isReleased(t, released)
	w.stop()
}

// TestALimit: what logind grants counts when the machine stops, and too little of it is told before.
func TestALimit(t *testing.T) {
	b := newBus(t)
	l := b.newLogin(5 * time.Second)
	w := b.run()
	w.log.await(t, "InhibitDelayMaxSec")
	w.holds(l)
	l.mu.Lock()
	l.delay = 7 * time.Second
	l.mu.Unlock()
	l.stops(true)
	if limit := await(t, "the pods to be ended", w.prepare); limit != 7*time.Second {
		t.Errorf("within %s", limit)
	}
	w.stop()
	await(t, "the node to be told", w.stopped)
}

// TestACancellation: when the machine goes on another inhibitor is held.
func TestACancellation(t *testing.T) {
	b := newBus(t)
	l := b.newLogin(time.Minute)
	w := b.run()
	first := w.holds(l)
	await(t, "the first look", w.cancel)
	l.stops(true)
	await(t, "the pods to be ended", w.prepare)
	l.stops(false)
	await(t, "the node to be told", w.stopped)
	await(t, "the node to be told", w.cancel)
	second := w.holds(l)
	isReleased(t, first)
	l.stops(true)
	await(t, "the pods to be ended", w.prepare)
	isHeld(t, second)
	w.stop()
	isReleased(t, second)
}

// TestASignalOfAnother: only logind says that the machine stops.
func TestASignalOfAnother(t *testing.T) {
	b := newBus(t)
	l := b.newLogin(time.Minute)
	w := b.run()
	w.holds(l)
	await(t, "the first look", w.cancel)
	other := b.connect()
	names := []string{}
	if err := other.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names { // to everybody by name, which no match keeps away
		msg := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(object), dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant(prepare),
			dbus.FieldDestination: dbus.MakeVariant(name), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
		}, Body: []any{true}}
		if call := other.Send(msg, nil); call != nil && call.Err != nil {
			t.Fatal(call.Err)
		}
	}
	await(t, "logind to be asked", w.cancel) // and it says that the machine goes on
	select {
	case <-w.prepare:
		t.Error("the pods are ended")
	default:
	}
}

// TestTheBusGoesAway: a bus that is away is waited for. The inhibitor stays, and a shutdown that has begun meanwhile is found.
func TestTheBusGoesAway(t *testing.T) {
	b := newBus(t)
	l := b.newLogin(time.Minute)
	w := b.run()
	released := w.holds(l)
	b.restart()
	w.log.await(t, "systemd-logind can't be watched")
	isHeld(t, released)
	l = b.newLogin(time.Minute)
	again := w.holds(l)
	isReleased(t, released)
	b.restart()
	b.loginThat(true, time.Minute)
	await(t, "the pods to be ended", w.prepare)
	isHeld(t, again)
	close(w.ended)
	isReleased(t, again)
}

// TestNoBus: where there is none nothing happens, and that is said.
func TestNoBus(t *testing.T) {
	b := &bus{t: t, address: "unix:path=/nonexistent/bus"}
	w := b.run()
	w.log.await(t, "monopod drain")
	w.stop()
}
