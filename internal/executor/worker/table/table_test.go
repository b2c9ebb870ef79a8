//go:build cgo

package table

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/execution"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/kit/ids"
)

// disk is what a Table stores records on.
type disk struct {
	last record.Record
	err  error
	full chan struct{} // nil: a write is done at once; else it waits until that is closed
}

func (d *disk) Put(r record.Record) error {
	if d.full != nil {
		<-d.full
	}
	if d.err == nil {
		d.last = r
	}
	return d.err
}

func created(id ids.ContainerID) record.Record {
	return record.Record{ID: id, Stage: record.StageCreated, CreatedAt: time.Unix(1, 0).UTC()}
}

func start(r *record.Record) { r.Stage, r.StartedAt = record.StageRunning, time.Unix(2, 0).UTC() }

// While a record is written the container can be looked at, signalled, attached to, listed, and others are created.
func TestSlowDiskHoldsUpNobody(t *testing.T) {
	d := &disk{full: make(chan struct{})}
	tab := New(d)
	c := tab.Add(created("a"))
	written := make(chan error)
	go func() { written <- tab.Change(c, start) }()
	for c.writing.TryLock() { // until it is being written
		c.writing.Unlock()
	}
	if rec := c.Record(); rec.Phase() != protocol.Created {
		t.Errorf("it is %s before that is stored", rec.Phase())
	}
	c.SetProcess(c.Process())
	c.SetStdio(c.Stdio())
	if err := c.BeginExec("x", &execution.Execution{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("an exec in a container that does not run: %v", err)
	}
	if got := tab.States(); len(got) != 1 || got[0].Phase != protocol.Created {
		t.Errorf("states %+v", got)
	}
	if _, release, err := tab.Reserve(t.Context(), "b"); err != nil {
		t.Error(err)
	} else {
		release()
	}
	close(d.full)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if rec := c.Record(); rec.Phase() != protocol.Running {
		t.Errorf("it is %s, want running", rec.Phase())
	}
}

// What a Start has stored and not shown yet is neither shown nor lost by another change that comes in between.
func TestChangeBetweenWriteAndShow(t *testing.T) {
	d := &disk{}
	tab := New(d)
	c := tab.Add(created("a"))
	if err := tab.Write(c, start); err != nil {
		t.Fatal(err)
	}
	if err := tab.Change(c, func(r *record.Record) { r.LogFixed = true }); err != nil {
		t.Fatal(err)
	}
	if rec := c.Record(); rec.Phase() != protocol.Created || !rec.LogFixed {
		t.Errorf("shown: %s, the log fixed %v; want created, and fixed", rec.Phase(), rec.LogFixed)
	}
	if d.last.Phase() != protocol.Running || !d.last.LogFixed {
		t.Errorf("stored: %s, the log fixed %v; want running, and fixed", d.last.Phase(), d.last.LogFixed)
	}
	tab.Show(c)
	if rec := c.Record(); rec.Phase() != protocol.Running || !rec.LogFixed {
		t.Errorf("shown at last: %s, the log fixed %v; want running, and fixed", rec.Phase(), rec.LogFixed)
	}
}

// A change that cannot be stored is none, unless it tells what is so.
func TestFullDisk(t *testing.T) {
	d := &disk{}
	tab := New(d)
	c := tab.Add(created("a"))
	d.err = errors.New("no room")
	if err := tab.Change(c, start); !errors.Is(err, d.err) {
		t.Errorf("change: %v", err)
	}
	if rec := c.Record(); rec.Phase() != protocol.Created {
		t.Errorf("it is %s after a change that failed", rec.Phase())
	}
	err := tab.Amend(c, func(r *record.Record) { r.Stage, r.Exit = record.StageExited, &protocol.Exit{Code: 3} })
	if !errors.Is(err, d.err) {
		t.Errorf("amend: %v", err)
	}
	if rec := c.Record(); rec.Phase() != protocol.Exited {
		t.Errorf("it is %s, and has exited", rec.Phase())
	}
	d.err = nil
	if err := tab.Change(c, func(r *record.Record) { r.LogFixed = true }); err != nil || d.last.Exit == nil {
		t.Errorf("stored later: %+v, %v; want the exit, too", d.last, err)
	}
}

type memory struct{ closed int }

func (m *memory) Close() error { m.closed++; return nil }

// A container that is forgotten makes room for another of its id, whoever waited for the right to it.
func TestForget(t *testing.T) {
	tab := New(&disk{})
	old, release, err := tab.Reserve(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	fresh := func() io.Closer { return m }
	if old.Remember(fresh) != m || old.Remember(func() io.Closer { return &memory{} }) != m {
		t.Error("what was remembered is forgotten")
	}
	got := make(chan *Container)
	go func() {
		c, release, err := tab.Reserve(context.WithoutCancel(t.Context()), "a")
		if err != nil {
			t.Error(err)
		} else {
			release()
		}
		got <- c
	}()
	tab.Forget(old)
	release()
	if c := <-got; c == old || c == nil {
		t.Errorf("reserved %v, want another than the one that is gone", c)
	}
	if m.closed != 1 {
		t.Errorf("its memory was closed %d times", m.closed)
	}
	if err := old.Present(); !errdefs.IsNotFound(err) {
		t.Errorf("the one that is gone: %v", err)
	}
}

func TestClose(t *testing.T) {
	tab := New(&disk{})
	tab.Close()
	if _, _, err := tab.Reserve(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("closed: %v", err)
	}
	tab.Open()
	if _, _, err := tab.Reserve(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A busy container is no reason to wait longer than the caller does.
func TestTake(t *testing.T) {
	tab := New(&disk{})
	c := tab.Add(created("a"))
	release, err := c.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tab.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("busy: %v", err)
	}
	release()
	if _, release, err := tab.Lock(t.Context(), "a"); err != nil {
		t.Error(err)
	} else {
		release()
	}
	if _, _, err := tab.Lock(t.Context(), "b"); !errdefs.IsNotFound(err) {
		t.Errorf("one that is not there: %v", err)
	}
}
