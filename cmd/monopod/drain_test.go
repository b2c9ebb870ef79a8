package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/test/clitest"
)

// drained is a node that tells this, one after the other.
type drained struct {
	told  []protocol.Drain
	ticks chan struct{}
	asked []protocol.DrainRequest
}

func (d *drained) Begin(req protocol.DrainRequest) (bool, error) {
	d.asked = append(d.asked, req)
	return len(d.asked) > 1, nil
}

// Drain is asked after Begin, by one request at a time.
func (d *drained) Drain() protocol.Drain {
	now := d.told[0]
	if len(d.told) > 1 {
		d.told = d.told[1:]
		d.ticks <- struct{}{}
	}
	return now
}

func (d *drained) Watch() (<-chan struct{}, func()) { return d.ticks, func() {} }

func serveDrain(t *testing.T, told ...protocol.Drain) (*drained, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &drained{told: told, ticks: make(chan struct{}, 1)}
	socket := filepath.Join(dir, protocol.SocketName)
	s, err := admin.New(admin.Config{Socket: socket, Drain: d, Status: func(context.Context) protocol.Status { return protocol.Status{} }})
	if err != nil {
		t.Fatal(err)
	}
	clitest.Background(t, "admin", s.Run)
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("no socket")
	}
	return d, socket
}

var (
	drainBegun = time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	drainUntil = drainBegun.Add(30 * time.Second)
	web        = protocol.DrainPod{Namespace: "default", Name: "web"}
	critical   = protocol.DrainPod{Namespace: "kube-system", Name: "dns"}
)

func going(turn int, pods ...protocol.DrainPod) protocol.Drain {
	return protocol.Drain{Active: true, Known: true, Begun: &drainBegun, Until: &drainUntil, Turn: turn, Turns: 2, Pods: pods}
}

func finished(pods ...protocol.DrainPod) protocol.Drain {
	d := going(2, pods...)
	d.Finished = true
	return d
}

func TestDrainCommand(t *testing.T) {
	unknown := going(1)
	unknown.Known = false
	d, socket := serveDrain(t, unknown, going(1, web, critical), going(1, critical), going(2, critical), finished())
	out, _, err := command(t.Context(), "drain", "--admin-socket", socket, "--grace", "40s", "--critical-grace", "5s")
	want := "the node is drained; its pods have until 10:00:30\n2 pods run: default/web, kube-system/dns\ndefault/web has ended\n" +
		"the pods of the highest priority end now\nkube-system/dns has ended\nall pods have ended\n"
	if err != nil || out.String() != want {
		t.Errorf("%v, %s", err, out)
	}
	if *d.asked[0].Grace != 40*time.Second || *d.asked[0].CriticalGrace != 5*time.Second {
		t.Errorf("asked for %+v", d.asked)
	}
	out, _, err = command(t.Context(), "drain", "--admin-socket", socket)
	if want := "the node is drained already, since 10:00:00\nno pod runs\nall pods have ended\n"; err != nil || out.String() != want || d.asked[1].Grace != nil {
		t.Errorf("again: %v, %s", err, out)
	}
}

func TestDrainCommandWhenTheTimeIsOver(t *testing.T) {
	_, socket := serveDrain(t, going(1, web, critical), finished(web, critical))
	if _, _, err := command(t.Context(), "drain", "--admin-socket", socket); err == nil || err.Error() != "the time is over, and these pods have not ended: default/web, kube-system/dns" {
		t.Errorf("%v", err)
	}
	_, socket = serveDrain(t, going(1, web, critical))
	out, _, err := command(t.Context(), "drain", "--admin-socket", socket, "--wait=false")
	if err != nil || !strings.Contains(out.String(), "2 pods run") {
		t.Errorf("%v, %s", err, out)
	}
	for _, args := range [][]string{{"--grace", "-1s"}, {"--grace", "1s", "--critical-grace", "2s"}, {"--grace", "soon"}, {"now"}} {
		if _, _, err := command(t.Context(), append([]string{"drain", "--admin-socket", socket}, args...)...); !errors.As(err, new(*cli.UsageError)) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
