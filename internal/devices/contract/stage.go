package contract

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/kit/wait"
)

// stage is where the plugin plays: its process, and the desk at which it registers; how it is reached there and started again, and how long that may take.
type stage struct {
	cfg     Config
	pace    pace
	desk    *desk    // nil: the plugin runs already
	program *program // nil: the plugin runs already
	died    bool     // the program has ended although nobody had told it to
}

// call calls the plugin, for at most the time of a step.
func (g *stage) call(ctx context.Context, f func(context.Context) error) judge.Call {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	c := judge.Call{Took: time.Since(began)}
	if err == nil {
		return c
	}
	c.Error = plugin.Words(err)
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		c.Hung = true
	case code == codes.Unavailable:
		c.Lost = true
	case code == codes.Unimplemented:
		c.Unknown = true
	}
	return c
}

// reach waits until a socket takes connections.
func (g *stage) reach(ctx context.Context, path string, most time.Duration) judge.Call {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	began := time.Now()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			conn.Close()
			return judge.Call{Took: time.Since(began)}
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return judge.Call{Took: time.Since(began), Error: err.Error()}
		}
		if g.program != nil {
			if how, ended := g.program.ended(); ended {
				return judge.Call{Took: time.Since(began), Error: "the plugin has ended: " + how}
			}
		}
	}
}

// open connects to a subject.
func (g *stage) open(ctx context.Context, s *subject) (*line, error) {
	if call := g.reach(ctx, s.socket, g.cfg.Timeout); call.Failed() {
		return nil, errors.New(call.Error)
	}
	conn, err := connect(ctx, s.socket)
	if err != nil {
		return nil, err
	}
	return &line{conn: conn, client: v1beta1.NewDevicePluginClient(conn), numa: hostNUMA(), later: &s.later, changed: make(chan struct{}), closed: make(chan struct{})}, nil
}

// seen completes the socket of a registration of the plugin watcher's, whose path is one that the plugin sees.
func (g *stage) seen(reg registration) registration {
	if reg.watched {
		reg.socket = g.program.outside(reg.endpoint)
	}
	return reg
}

// quiet waits until nothing registers any more, or not for long.
func (g *stage) quiet(ctx context.Context) {
	const pause, most = 250 * time.Millisecond, 10
	for range most {
		n := len(g.desk.list(0))
		if !g.desk.await(ctx, pause, g.program.done(), func(all []registration) bool { return len(all) > n }) {
			return
		}
	}
}

// startAgain starts the program anew, and waits for the registrations.
func (g *stage) startAgain(ctx context.Context, subjects []*subject) error {
	if _, err := g.program.kill(); err != nil {
		return err
	}
	if err := g.desk.removeSockets(); err != nil { // as a kubelet would; some plugins fail where theirs is left
		return err
	}
	after := len(g.desk.list(0))
	p, err := startWith(g.cfg, g.program.place, g.program.words)
	if err != nil {
		return err
	}
	g.program = p
	if missing := g.awaitAgain(ctx, subjects, after, g.cfg.Timeout); len(missing) > 0 {
		return fmt.Errorf("not registered within %s: %s", judge.Time(g.cfg.Timeout), strings.Join(missing, ", "))
	}
	return nil
}

// awaitAgain waits for new registrations of all subjects, after so many, and returns the names of those without.
func (g *stage) awaitAgain(ctx context.Context, subjects []*subject, after int, most time.Duration) (missing []string) {
	g.desk.await(ctx, most, g.program.done(), func([]registration) bool {
		missing = nil
		for _, s := range subjects {
			reg, ok := g.desk.latest(s.name, after)
			if !ok {
				missing = append(missing, s.name)
				continue
			}
			s.socket = g.seen(reg).socket
		}
		return len(missing) == 0
	})
	return missing
}
