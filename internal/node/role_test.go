package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// diary notes what roles are asked for.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// role notes each call; its opening fails with err.
func (d *diary) role(name string, err error) role {
	return role{
		name:   name,
		open:   func(context.Context) error { d.note("open " + name); return err },
		undo:   func(context.Context) error { d.note("undo " + name); return nil },
		close:  func() error { d.note("close " + name); return nil },
		remove: func(context.Context) error { d.note("remove " + name); return nil },
		run: func(ctx context.Context) error {
			<-ctx.Done()
			d.note("stop " + name)
			return nil
		},
	}
}

func testProcess(t *testing.T, ephemeral bool) *process {
	t.Helper()
	dir := t.TempDir()
	return newProcess(Options{Ephemeral: ephemeral, Log: slog.New(slog.DiscardHandler), Config: &v1alpha1.NodeConfiguration{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"),
	}})
}

// TestRolesAreRun: roles open in order, stop and are closed in the other, and are removed only with an ephemeral node: then before they are closed.
func TestRolesAreRun(t *testing.T) {
	for name, want := range map[string][]string{
		"lasting":   {"open a", "open b", "stop b", "stop a", "close b", "close a"},
		"ephemeral": {"open a", "open b", "stop b", "stop a", "remove b", "remove a", "close b", "close a"},
	} {
		t.Run(name, func(t *testing.T) {
			var d diary
			p := testProcess(t, name == "ephemeral")
			ctx, cancel := context.WithCancel(t.Context())
			a, b := d.role("a", nil), d.role("b", nil)
			last := role{name: "last", run: func(context.Context) error { cancel(); return nil }}
			err := p.do(ctx, work{parts: []part{partRuntime}, open: [][]role{{a}, {b}}, run: []role{a, {name: "nothing to run"}, b, last}, remove: []role{b, last, a}})
			if err != nil || !slices.Equal(d.lines, want) {
				t.Errorf("%q, %v; want %q", d.lines, err, want)
			}
			if exists(p.Config.DataDir) == p.Ephemeral {
				t.Errorf("the data directory is there: %t", !p.Ephemeral)
			}
		})
	}
}

// TestAStartThatFails: nothing runs, what is open is undone and closed, and an ephemeral node leaves nothing behind.
func TestAStartThatFails(t *testing.T) {
	broken := errors.New("broken")
	for name, want := range map[string][]string{
		"lasting":   {"open a", "open b", "undo b", "undo a", "close b", "close a"},
		"ephemeral": {"open a", "open b", "undo b", "undo a", "remove c", "remove a", "close b", "close a"},
	} {
		t.Run(name, func(t *testing.T) {
			var d diary
			p := testProcess(t, name == "ephemeral")
			a, b, c := d.role("a", nil), d.role("b", broken), d.role("c", nil)
			err := p.do(t.Context(), work{parts: []part{partRuntime}, open: [][]role{{a}, {b}, {c}}, run: []role{a, b, c}, remove: []role{c, a}})
			if !errors.Is(err, broken) || !slices.Equal(d.lines, want) {
				t.Errorf("%q, %v; want %q", d.lines, err, want)
			}
		})
	}
}

// TestAGroupOpensSideBySide: each waits for the other, and one that fails ends the others' opening.
func TestAGroupOpensSideBySide(t *testing.T) {
	one, two := make(chan struct{}), make(chan struct{})
	meet := func(mine, others chan struct{}) role {
		return role{open: func(ctx context.Context) error {
			close(mine)
			if !await(ctx, others) {
				return ctx.Err()
			}
			return nil
		}}
	}
	if err := openGroup(t.Context(), []role{meet(one, two), meet(two, one)}); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	err := openGroup(t.Context(), []role{{open: idle}, {open: func(context.Context) error { return broken }}})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestRemovalGoesOn: each is removed and closed, whatever the others say, and the faults of all are told.
func TestRemovalGoesOn(t *testing.T) {
	var d diary
	a, c := d.role("a", nil), d.role("c", nil)
	b := role{name: "b", remove: func(context.Context) error { return errors.New("stuck") }, close: func() error { return errors.New("jammed") }}
	if err := removeAll([]role{a, b, c}); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Error(err)
	}
	if err := closeAll([]role{a, b, c}); err == nil || !strings.Contains(err.Error(), "jammed") {
		t.Error(err)
	}
	if want := []string{"remove a", "remove c", "close c", "close a"}; !slices.Equal(d.lines, want) {
		t.Errorf("%q, want %q", d.lines, want)
	}
}

// TestTheDNSIsNotNeeded: a node that cannot have its DNS goes on without it, and says why.
func TestTheDNSIsNotNeeded(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.9.0.10:53")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, services := range []string{"no range", "127.9.0.0/24"} {
		p := testProcess(t, false)
		p.Config.APIServer.ServiceCIDRs, p.Config.Agent.ClusterDomain = []string{services}, "cluster.local"
		names := &dnsRole{process: p}
		if err := names.open(t.Context()); err != nil || names.serves() || names.problem == nil || len(names.servers()) != 0 {
			t.Errorf("%s: %v, serves %t, problem %v, servers %v", services, err, names.serves(), names.problem, names.servers())
		}
		if err := errors.Join(names.addressRole().open(t.Context()), names.undo(t.Context()), names.role().close()); err != nil {
			t.Errorf("%s: %v", services, err)
		}
	}
}
