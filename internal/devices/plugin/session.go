package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/wait"
)

// session is what one socket has registered for a resource, for as long as something may come of it:
//
//	registered --first list--> live --stream ends--> gone --grace--> expired
//	    |                       ^                     |                 |
//	    |                       +----- list again ----+-----------------+   (only while something answers at the socket)
//	    +--- nothing answers for the grace period: forgotten
//
// One goroutine has the stream, tries again when it ends, and ends with the session.
type session struct {
	source           *Source
	resource, socket string
	cancel           context.CancelFunc // ends the session
	kick             chan struct{}      // a new registration: try at once
	turn             chan struct{}      // held during an Allocate or GetPreferredAllocation: kubelets never have two at a time

	// What follows is guarded by source.mu.
	registered *v1beta1.DevicePluginOptions // what Register said
	from       string                       // the registration's key, where it can end
	anew       bool                         // registered since the last list: whatever serves the socket is the plugin
	attempts   int                          // of them, the last is the one under way
	abort      context.CancelFunc           // ends it
	dismissed  error                        // why it is to be gone, although its stream may be open
	reached    bool                         // the last attempt got a connection, or the first after a registration has not ended
	at         file                         // what the socket was when the plugin told its devices
	line       *line                        // while the stream is open
	options    *v1beta1.DevicePluginOptions // as they were last known
	listed     bool                         // it has told its devices
	devices    []inventory.Device           // unhealthy while it is gone
	notes      []note
	failure    string    // why there is no stream
	end        string    // how the last stream ended
	since      time.Time // of the registration, or of the stream's end
	expired    bool
	expiry     *time.Timer
}

// problems are what is wrong with the plugin. source.mu is held.
func (s *session) problems() []inventory.Problem {
	var all []inventory.Problem
	add := func(format string, args ...any) {
		all = append(all, inventory.Problem{Resource: s.resource, Paths: []string{s.socket}, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case s.line != nil && !s.listed:
		add("the plugin has registered %s and not told its devices yet", s.resource)
	case s.line != nil:
		for _, n := range s.notes {
			add("the plugin's list of devices: %s", n.text)
		}
	case s.listed:
		add("%s", s.absence())
	case s.failure != "":
		add("the plugin has registered %s and cannot be used yet: %s", s.resource, s.failure)
	}
	return all
}

// absence says of a plugin that is gone since when, how it went, and what is in the way of its return. It does not name the socket: whoever tells
// of the devices, or of the problem, begins with that. source.mu is held.
func (s *session) absence() string {
	text := fmt.Sprintf("the plugin of %s has been gone since %s: %s", s.resource, s.since.Format(time.RFC3339), s.end)
	if s.failure != s.end {
		text += "; " + s.failure
	}
	goes := s.since.Add(s.source.cfg.Grace).Format(time.RFC3339)
	if s.expired {
		return text + "; its devices were forgotten at " + goes
	}
	return text + "; if it does not come back, its devices are forgotten at " + goes
}

// run has the plugin's devices told, until nothing more is to be expected of it.
func (s *session) run(ctx context.Context) {
	defer s.source.forget(s)
	pause := s.source.pace.retryMin
	for {
		began := time.Now()
		attempt, err := s.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		if !s.source.failed(s, attempt, err) {
			return
		}
		if time.Since(began) > s.source.pace.retryMax {
			pause = s.source.pace.retryMin // it had a good time
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
			pause = min(2*pause, s.source.pace.retryMax)
		case <-s.kick:
			pause = s.source.pace.retryMin
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

var (
	errHungUp      = errors.New("it has closed its connection: it was stopped, or has crashed")
	errStreamEnded = errors.New("it ended its stream of devices")
	errAgain       = errors.New("it registers again")
	errOtherSocket = errors.New("another program serves its socket now, which has not registered")
	errNoSocket    = errors.New("its socket is not there")
	errNotServed   = errors.New("nobody serves its socket")
)

// unnamed is an error of the socket without its path.
func unnamed(err error) error {
	var op *net.OpError
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errNoSocket
	case errors.Is(err, unix.ECONNREFUSED):
		return errNotServed
	case errors.As(err, &op):
		return op.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}

// attempt connects, and follows the stream until it ends, which it does with an error.
func (s *session) attempt(ctx context.Context) (attempt int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempt, registered, err := s.source.begin(s, cancel)
	if err != nil {
		return attempt, err
	}
	brief, done := context.WithTimeout(ctx, s.source.pace.answer)
	defer done()
	conn, err := connect(brief, s.socket)
	if err == nil {
		defer conn.close()
	}
	at, _, statErr := fileAt(s.socket)
	if err := s.source.reached(s, at, unnamed(cmp.Or(err, statErr))); err != nil {
		return attempt, err
	}
	client := v1beta1.NewDevicePluginClient(conn)
	options, err := optionsOf(brief, client, registered)
	if err != nil {
		return attempt, err
	}
	stream, err := client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return attempt, ended(err)
	}
	s.source.opened(s, attempt, &line{plugin: client, options: options})
	err = s.follow(ctx, attempt, at, stream)
	if conn.conn.ended.Load() && ctx.Err() == nil {
		return attempt, errHungUp
	}
	return attempt, err
}

// follow takes the lists of a stream until it ends.
func (s *session) follow(ctx context.Context, attempt int, at file, stream grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse]) error {
	for {
		msg, err := stream.Recv()
		if err != nil {
			return ended(err)
		}
		began := time.Now()
		devices, notes := devicesOf(s.resource, s.socket, msg.GetDevices())
		if !s.source.told(s, attempt, at, devices, notes) {
			return errAgain // what is told counts elsewhere
		}
		// A plugin that sends without a pause is slowed down by its own socket: it takes a fifth of a processor at most.
		if rest := 4 * time.Since(began); rest > time.Millisecond && wait.For(ctx, rest) != nil {
			return ctx.Err()
		}
	}
}
