package admin_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
)

// drainer is a node whose pods end when the test says so.
type drainer struct {
	ticks chan struct{}

	mu    sync.Mutex // guards what follows
	now   protocol.Drain
	asked []protocol.DrainRequest
}

func (d *drainer) Begin(req protocol.DrainRequest) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if req.Grace != nil && *req.Grace == 13*time.Second {
		return false, errdefs.ErrInvalidArgument
	}
	d.asked = append(d.asked, req)
	joined := d.now.Active
	d.now.Active = true
	return joined, nil
}

func (d *drainer) Drain() protocol.Drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now
	now.Pods = slices.Clone(now.Pods)
	return now
}

func (d *drainer) Watch() (<-chan struct{}, func()) { return d.ticks, func() {} }

// end ends the first pod.
func (d *drainer) end() {
	d.mu.Lock()
	d.now.Pods = d.now.Pods[1:]
	d.now.Finished = len(d.now.Pods) == 0
	d.mu.Unlock()
	d.ticks <- struct{}{}
}

// drainable is a served socket of a node with two pods.
func drainable(t *testing.T) (*rig, *drainer, *client.Client, func()) {
	r := newRig(t)
	d := &drainer{ticks: make(chan struct{}, 1)}
	d.now.Known, d.now.Pods = true, []protocol.DrainPod{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "b"}}
	socket := filepath.Join(r.dir, "drain.sock")
	stop := r.serve(admin.Config{Socket: socket, Drain: d, Status: func(context.Context) protocol.Status { return protocol.Status{} }})
	c := client.New(socket)
	t.Cleanup(c.Close)
	return r, d, c, stop
}

func TestADrain(t *testing.T) {
	_, d, c, _ := drainable(t)
	grace, critical := 90*time.Second, 5*time.Second
	var told []protocol.Drain
	err := c.Drain(t.Context(), protocol.DrainRequest{Grace: &grace, CriticalGrace: &critical}, true, func(now protocol.Drain) error {
		told = append(told, now)
		if !now.Finished {
			d.end()
		}
		return nil
	})
	if err != nil || len(told) != 3 || len(told[0].Pods) != 2 || len(told[1].Pods) != 1 || !told[2].Finished || told[2].Joined {
		t.Errorf("%+v, %v", told, err)
	}
	if len(d.asked) != 1 || *d.asked[0].Grace != grace || *d.asked[0].CriticalGrace != critical {
		t.Errorf("asked for %+v", d.asked)
	}
	told = nil
	if err := c.Drain(t.Context(), protocol.DrainRequest{}, true, func(now protocol.Drain) error { told = append(told, now); return nil }); err != nil ||
		len(told) != 1 || !told[0].Joined || !told[0].Finished || d.asked[1].Grace != nil {
		t.Errorf("the second: %+v, %v", told, err)
	}
}

func TestADrainThatIsNotWaitedFor(t *testing.T) {
	_, _, c, stop := drainable(t)
	calls := 0
	if err := c.Drain(t.Context(), protocol.DrainRequest{}, false, func(now protocol.Drain) error {
		calls++
		if now.Finished || !now.Active {
			t.Errorf("%+v", now)
		}
		return nil
	}); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	// One that is waited for ends with the node, and says so.
	err := c.Drain(t.Context(), protocol.DrainRequest{}, true, func(protocol.Drain) error { stop(); return nil })
	if !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

func TestDrainsThatAreRefused(t *testing.T) {
	r, _, c, _ := drainable(t)
	thirteen := 13 * time.Second
	if err := c.Drain(t.Context(), protocol.DrainRequest{Grace: &thirteen}, true, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("%v", err)
	}
	if err := r.client.Drain(t.Context(), protocol.DrainRequest{}, true, nil); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "role agent") {
		t.Errorf("without the role: %v", err)
	}
	r.socket = filepath.Join(r.dir, "drain.sock")
	for query, want := range map[string]string{"grace=soon": "grace is", "criticalGrace=-1s": "criticalGrace is", "wait=perhaps": "wait is"} {
		if code, body := r.raw("POST /v1/drain?" + query + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %q", query, code, body)
		}
	}
	if code, body := r.raw("GET /v1/drain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); code != 200 || !strings.Contains(body, `{"active":false,"finished":false,"known":true,"pods":[`) {
		t.Errorf("%d, %q", code, body)
	}
}
