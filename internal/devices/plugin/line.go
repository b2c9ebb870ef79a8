package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/host/unixsocket"
)

// maxMessage bounds what a plugin may send at once: more than 65,536 devices with everything that the API has for them.
const maxMessage = 64 << 20

// file is which file a path leads to.
type file = unixsocket.ID

func fileAt(path string) (id file, mode uint32, err error) { return unixsocket.At(path) }

// connection is a gRPC connection to whom a socket led once: it never becomes one with another process that has come to the same path.
type connection struct {
	*grpc.ClientConn
	conn *watchedConn
}

// watchedConn knows that it has ended before gRPC tells anybody in its own words.
type watchedConn struct {
	net.Conn
	ended atomic.Bool
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended.Store(true)
	}
	return n, err
}

func (c *connection) close() {
	_ = c.ClientConn.Close()
	_ = c.conn.Close() // gRPC has closed it, unless it was never used
}

// readBuffer is the bytes that are kept for what a plugin may say; frames that are larger pass it by.
const readBuffer = 4 << 10

func connect(ctx context.Context, path string) (*connection, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := &watchedConn{Conn: socket}
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // what gRPC says on sockets; some servers take no other
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection has ended")
			}
			return conn, nil
		}),
		// The usual 32 kB would be most of what a plugin costs: it is silent nearly always.
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		conn.Close()
		return nil, err
	}
	client.Connect()
	return &connection{client, conn}, nil
}

// line is what a plugin is talked to through.
type line struct {
	plugin  v1beta1.DevicePluginClient
	options *v1beta1.DevicePluginOptions
}

// optionsOf asks for a plugin's options. One that does not know the question is older than it: what it said when it registered holds.
func optionsOf(ctx context.Context, c v1beta1.DevicePluginClient, registered *v1beta1.DevicePluginOptions) (*v1beta1.DevicePluginOptions, error) {
	options, err := c.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	switch status.Code(err) {
	case codes.OK:
		return options, nil
	case codes.Unimplemented:
		return registered, nil
	default:
		return nil, fmt.Errorf("GetDevicePluginOptions: %w", plain(err))
	}
}

// mayPass says that a call's error is that of the way to the plugin, not the plugin's answer.
func mayPass(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// inTime makes a call's error the time-out's when its time is over: the plugin knows the deadline too, and its own words about it may come first. Its gRPC may even
// see a moment before us that it is over, and resets the stream then.
func inTime(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case err == nil || !ok:
		return err
	case !time.Now().Before(deadline):
		return status.FromContextError(context.DeadlineExceeded).Err()
	case status.Code(err) == codes.Canceled && ctx.Err() == nil:
		return status.Errorf(codes.DeadlineExceeded, "%v: %s", context.DeadlineExceeded, status.Convert(err).Message())
	}
	return err
}

// isLate says that a call's error is that its time, which was so long, is over: not a plugin's own word about a deadline.
func isLate(ctx context.Context, err error, limit time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && status.Code(err) == codes.DeadlineExceeded && time.Until(deadline) < limit/10
}

// awayError is an errdefs.ErrUnavailable in words of its own.
type awayError struct{ words string }

func (e *awayError) Error() string { return e.words }
func (e *awayError) Unwrap() error { return errdefs.ErrUnavailable }

// plain strips gRPC's frame off an error; what may pass is an errdefs.ErrUnavailable.
func plain(err error) error {
	const most = 1000 // bytes of a plugin's words that go into messages
	words := err.Error()
	if st, ok := status.FromError(err); ok {
		words = st.Message()
		if words == "" {
			words = "an error without words, of code " + st.Code().String()
		}
	}
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "..."
	}
	if mayPass(err) {
		return &awayError{words}
	}
	return errors.New(words)
}
