package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// printers is an executor whose commands print so many bytes to each stream, and end when they are let go.
type printers struct {
	bytes int
	goOn  chan struct{}
	begun sync.WaitGroup
}

func (p *printers) Exec(ctx context.Context, _ protocol.ExecRequest, files ...*os.File) (protocol.ExecResponse, error) {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	for _, f := range files {
		for left := p.bytes; left > 0; left -= len(chunk) {
			if _, err := f.Write(chunk[:min(left, len(chunk))]); err != nil {
				return protocol.ExecResponse{}, err
			}
		}
	}
	p.begun.Done()
	select {
	case <-p.goOn:
	case <-ctx.Done():
	}
	return protocol.ExecResponse{Exit: protocol.Exit{Code: 3}}, nil
}

func (p *printers) Attach(context.Context, protocol.AttachRequest, ...*os.File) error { return nil }
func (p *printers) Hold(context.Context, protocol.AttachRequest, ...*os.File) (func() error, error) {
	return nil, errdefs.ErrNotImplemented
}
func (p *printers) Resize(context.Context, protocol.ResizeRequest) error { return nil }
func (p *printers) Kill(context.Context, protocol.KillRequest) error     { return nil }

// anything is a container that runs whatever it is asked to.
type anything struct{}

func (anything) Process(ids.ContainerID, []string, bool) (*specs.Process, error) {
	return &specs.Process{}, nil
}
func (anything) Attachable(ids.ContainerID, bool) (bool, bool, error) { return false, false, nil }

func (anything) Ends(context.Context, ids.ContainerID) bool { return false }

func newPrinters(n int) (*Runner, *printers) {
	p := &printers{bytes: n, goOn: make(chan struct{})}
	return &Runner{Executor: p, Containers: anything{}, Log: slog.New(slog.DiscardHandler)}, p
}

type ended struct {
	res Result
	err error
}

// start begins so many Runs in a container, and returns when all have printed.
func (p *printers) start(r *Runner, container ids.ContainerID, n int) <-chan ended {
	results := make(chan ended, n)
	p.begun.Add(n)
	for range n {
		go func() {
			res, err := r.Run(context.Background(), container, []string{"print"}, 0)
			results <- ended{res, err}
		}()
	}
	p.begun.Wait()
	return results
}

func (b *bounds) now() (execs, held int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.execs {
		execs += n
	}
	return execs, b.all
}

// TestExecsOfAContainer: one container has so many commands at a time, and others have theirs.
func TestExecsOfAContainer(t *testing.T) {
	r, p := newPrinters(10)
	results := p.start(r, "greedy", maxExecs)
	for range 3 {
		_, err := r.Run(t.Context(), "greedy", []string{"one", "more"}, 0)
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "greedy") || !strings.Contains(err.Error(), fmt.Sprint(maxExecs)) {
			t.Errorf("one too many: %v", err)
		}
	}
	if err := r.Room("greedy"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("room for more: %v", err)
	}
	others := p.start(r, "modest", 1)
	if err := r.Room("modest"); err != nil {
		t.Error(err)
	}
	close(p.goOn)
	for _, c := range []<-chan ended{results, others} {
		for range cap(c) {
			e := <-c
			if e.err != nil || e.res.Code != 3 || len(e.res.Stdout) != 10 {
				t.Fatalf("%v, %v", e.res, e.err)
			}
			e.res.Release()
		}
	}
	if execs, held := r.bounds.now(); execs != 0 || held != 0 || len(r.bounds.execs)+len(r.bounds.held) != 0 {
		t.Errorf("%d commands and %d bytes are still counted", execs, held)
	}
	p.begun.Add(1)
	if res, err := r.Run(t.Context(), "greedy", []string{"again"}, 0); err != nil {
		t.Error(err)
	} else {
		res.Release()
	}
}

// TestOutputThatIsHeld: what containers print is kept within a bound, whatever their number; what is lost is said to be, and a
// command that prints little is never the one to pay.
func TestOutputThatIsHeld(t *testing.T) {
	r, p := newPrinters(maxStream)
	var all []<-chan ended
	for i := range 6 {
		all = append(all, p.start(r, ids.ContainerID(fmt.Sprintf("loud-%d", i)), 8))
	}
	// The pipes are read by others than those who have written: it is waited until nothing is left to read.
	deadline := time.Now().Add(time.Minute)
	for before := -1; time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, held := r.bounds.now()
		if held == before {
			break
		}
		before = held
	}
	if _, held := r.bounds.now(); held < maxStream || held > maxHeld {
		t.Errorf("%d bytes are held, the bound is %d", held, maxHeld)
	}
	r.bounds.mu.Lock()
	for container, n := range r.bounds.held {
		if n > maxHeldOfContainer {
			t.Errorf("%s holds %d bytes, the bound is %d", container, n, maxHeldOfContainer)
		}
	}
	r.bounds.mu.Unlock()
	const little = 16 << 10 // of each stream
	quiet := &printers{bytes: little, goOn: make(chan struct{})}
	close(quiet.goOn)
	for _, container := range []ids.ContainerID{"loud-0", "quiet"} {
		quiet.begun.Add(1)
		probe := &Runner{Executor: quiet, Containers: anything{}, Log: r.Log}
		probe.bounds.all, probe.bounds.held = maxHeld, map[ids.ContainerID]int{container: maxHeldOfContainer}
		if res, err := probe.Run(t.Context(), container, []string{"probe"}, 0); err != nil || len(res.Stdout) != little || len(res.Stderr) != little {
			t.Errorf("a probe beside them in %s: %d bytes, %v", container, len(res.Stdout), err)
		} else {
			res.Release()
		}
	}
	close(p.goOn)
	whole, lost := 0, 0
	for _, c := range all {
		for range cap(c) {
			e := <-c
			switch {
			case e.err == nil:
				whole++
				if got := len(e.res.Stdout) + len(e.res.Stderr); got != maxBoth {
					t.Errorf("%d bytes are told, want %d", got, maxBoth)
				}
				e.res.Release()
			case errdefs.IsResourceExhausted(e.err) && strings.Contains(e.err.Error(), "code 3"):
				lost++
			default:
				t.Error(e.err)
			}
		}
	}
	t.Logf("%d outputs were kept, %d lost", whole, lost)
	if lost == 0 || whole == 0 {
		t.Error("the bound is to cost some their output, and not all")
	}
	if execs, held := r.bounds.now(); execs != 0 || held != 0 {
		t.Errorf("%d commands and %d bytes are still counted", execs, held)
	}
	// One alone has room, also right after.
	p.begun.Add(1)
	if res, err := r.Run(t.Context(), "loud-0", []string{"again"}, 0); err != nil || len(res.Stdout)+len(res.Stderr) != maxBoth {
		t.Errorf("%d bytes, %v", len(res.Stdout), err)
	} else {
		res.Release()
	}
	// A call that fails keeps nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.begun.Add(1)
	if _, err := r.Run(ctx, "loud-0", []string{"cancelled"}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if execs, held := r.bounds.now(); execs != 0 || held != 0 {
		t.Errorf("%d commands and %d bytes are still counted", execs, held)
	}
}

// Many containers, each with as many commands as it may have, leave each other container its own.
func TestContainersShareRoomForCommands(t *testing.T) {
	var b bounds
	var ends []func()
	refused := 0
	for c := range 20 {
		for range maxExecs {
			end, err := b.begin(ids.ContainerID(fmt.Sprint("greedy", c)))
			switch {
			case err == nil:
				ends = append(ends, end)
			case !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "on the whole node"):
				t.Fatal(err)
			default:
				refused++
			}
		}
	}
	if want := maxShared + 20*ownExecs; len(ends) != want || refused != 20*maxExecs-want {
		t.Errorf("%d commands of 20 containers have begun, %d were refused; %d may", len(ends), refused, want)
	}
	for range ownExecs {
		end, err := b.begin("modest")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, err := b.begin("modest"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more than its own: %v", err)
	}
	for _, end := range ends {
		end()
	}
	if b.shared != 0 || len(b.execs) != 0 {
		t.Errorf("afterwards %d are counted, %v", b.shared, b.execs)
	}
}
