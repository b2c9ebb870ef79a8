package contract

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

// maxMessage is what the node takes.
const maxMessage = 64 << 20

// connection is a gRPC connection to who serves a socket now, and to nobody else later.
type connection struct {
	*grpc.ClientConn
	socket net.Conn
}

func (c *connection) close() {
	_ = c.ClientConn.Close()
	_ = c.socket.Close() // gRPC has closed it, unless it was never used
}

func connect(ctx context.Context, path string) (*connection, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection has ended")
			}
			return socket, nil
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		socket.Close()
		return nil, err
	}
	return &connection{client, socket}, nil
}

// line is a connection with a stream of devices.
type line struct {
	conn   *connection
	client v1beta1.DevicePluginClient
	cancel context.CancelFunc
	closed chan struct{}
	began  time.Time
	numa   []int // of the host

	mu      sync.Mutex
	changed chan struct{} // closed at the next list, and at the end
	lists   int
	devices []*v1beta1.Device // of the last list
	first   judge.List        // the first list that has devices in it; until there is one the last of those that are empty
	later   *judge.Later      // of the lists after that
	ended   error
	until   time.Time // of the end
}

// listen asks for the devices and follows the stream until close.
func (l *line) listen(ctx context.Context) error {
	ctx, l.cancel = context.WithCancel(ctx)
	l.began = time.Now()
	stream, err := l.client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		l.cancel()
		l.cancel = nil
		return err
	}
	go func() {
		defer close(l.closed)
		for {
			msg, err := stream.Recv()
			l.took(msg, err)
			if err != nil {
				return
			}
		}
	}()
	return nil
}

func (l *line) took(msg *v1beta1.ListAndWatchResponse, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.lists++
		l.devices = msg.GetDevices()
		list := judge.List{Devices: l.devices, Bytes: proto.Size(msg), HostNUMA: l.numa}
		if len(l.first.Devices) == 0 { // some plugins look for their devices while they serve
			l.first = list
		} else {
			l.later.Add(list)
		}
	} else {
		l.ended, l.until = err, time.Now()
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits for a list that is as wanted; ctx bounds it.
func (l *line) await(ctx context.Context, is func(devices []*v1beta1.Device) bool) error {
	for {
		l.mu.Lock()
		changed, ok, ended := l.changed, l.lists > 0 && is(l.devices), l.ended
		l.mu.Unlock()
		switch {
		case ok:
			return nil
		case errors.Is(ended, io.EOF):
			return errors.New("the stream has ended")
		case ended != nil:
			return ended
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *line) close() {
	if l.cancel != nil {
		l.cancel()
		<-l.closed
	}
	l.conn.close()
}

func (l *line) state() judge.Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := judge.Stream{Open: time.Since(l.began), Lists: l.lists}
	switch {
	case errors.Is(l.ended, io.EOF):
		s.Open, s.Ended = l.until.Sub(l.began), "ListAndWatch returned"
	case l.ended != nil:
		s.Open, s.Ended = l.until.Sub(l.began), plugin.Words(l.ended)
	}
	return s
}

// list is the last list, and the first.
func (l *line) list() (devices []*v1beta1.Device, first judge.List) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.devices, l.first
}

// laters are the lists after the first one, of this line and of those before.
func (l *line) laters() judge.Later {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.later
}

// hostNUMA are the NUMA nodes of this host; none when that is not known.
func hostNUMA() (nodes []int) {
	entries, err := os.ReadDir("/sys/devices/system/node")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}
