// Package client asks a running node over its administration socket.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/containerd/errdefs/pkg/errhttp"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/report"
)

// maxAnswer bounds an answer, in bytes: 65,536 devices take some tens of megabytes.
const maxAnswer = 256 << 20

// maxEvent bounds one event of a watch.
const maxEvent = 1 << 20

// Client asks the node at a socket. Its errors are of the classes of github.com/containerd/errdefs where the node has answered with one; where it
// has not answered they wrap what the system says, such as fs.ErrNotExist and syscall.ECONNREFUSED. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the socket; nothing is sent yet. Close it.
func New(socket string) *Client {
	var d net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}}
}

// Close ends the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Devices returns the devices of one resource, or of all when it is empty.
func (c *Client) Devices(ctx context.Context, resource string) (l report.List, err error) {
	return l, c.get(ctx, protocol.DevicesPath, of(resource), &l)
}

// Status returns how the node is.
func (c *Client) Status(ctx context.Context) (s protocol.Status, err error) {
	return s, c.get(ctx, protocol.StatusPath, nil, &s)
}

// Trace returns how a pod's start went, as far as the process knows.
func (c *Client) Trace(ctx context.Context, namespace, pod string) (t protocol.Trace, err error) {
	return t, c.get(ctx, protocol.TracePath, url.Values{protocol.NamespaceParam: {namespace}, protocol.PodParam: {pod}}, &t)
}

// Volumes returns the volumes of claims.
func (c *Client) Volumes(ctx context.Context) (v protocol.Volumes, err error) {
	return v, c.get(ctx, protocol.VolumesPath, nil, &v)
}

// WatchDevices calls f with each event, in order, until ctx ends, f returns an error, or the node ends: the error says which.
func (c *Client) WatchDevices(ctx context.Context, resource string, f func(report.Event) error) error {
	query := of(resource)
	query.Set(protocol.WatchParam, "true")
	resp, err := c.open(ctx, http.MethodGet, protocol.DevicesPath, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return each(ctx, c, resp.Body, f)
}

// Drain has the node end its pods, and calls f with how far it is, again and again until it is finished, ctx ends, f returns an error, or the node ends: the
// error says which. Without wait f is called once.
func (c *Client) Drain(ctx context.Context, req protocol.DrainRequest, wait bool, f func(protocol.Drain) error) error {
	query := url.Values{protocol.WaitParam: {strconv.FormatBool(wait)}}
	for name, d := range map[string]*time.Duration{protocol.GraceParam: req.Grace, protocol.CriticalGraceParam: req.CriticalGrace} {
		if d != nil {
			query.Set(name, d.String())
		}
	}
	resp, err := c.open(ctx, http.MethodPost, protocol.DrainPath, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	finished := false
	err = each(ctx, c, resp.Body, func(d protocol.Drain) error {
		finished = !wait || d.Finished || !d.Active
		return f(d)
	})
	if finished && errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// each calls f with each value of an answer of many lines. It never returns nil.
func each[T any](ctx context.Context, c *Client, body io.Reader, f func(T) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return fmt.Errorf("%s sends what is no event: %w", c.socket, err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the node at %s has ended the watch: %w", c.socket, errors.Join(lines.Err(), io.EOF))
}

func of(resource string) url.Values {
	query := url.Values{}
	if resource != "" {
		query.Set(protocol.ResourceParam, resource)
	}
	return query
}

func (c *Client) get(ctx context.Context, path string, query url.Values, to any) error {
	return c.ask(ctx, http.MethodGet, path, query, nil, to)
}

// ask sends a request, of which the body may be nil, and reads the one value that is answered.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, send io.Reader, to any) error {
	resp, err := c.sent(ctx, method, path, query, send)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("the node at %s has stopped in the middle of its answer: %w", c.socket, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("the answer of %s is longer than %d bytes", c.socket, maxAnswer)
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s does not answer as a node does: %w", c.socket, err)
	}
	return nil
}

// open sends a request and returns the answer if it is a success.
func (c *Client) open(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	return c.sent(ctx, method, path, query, nil)
}

// sent is open with a body; nil: there is none.
func (c *Client) sent(ctx context.Context, method, path string, query url.Values, send io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "monopod", Path: path, RawQuery: query.Encode()}
	if send != nil {
		send = io.NopCloser(send) // whoever opened it closes it
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), send)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // the URL is made up
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e protocol.Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxEvent)).Decode(&e); err != nil || e.Message == "" {
		return nil, fmt.Errorf("%s answers %s, which is not what a node says: %w", c.socket, resp.Status, errhttp.ToNative(resp.StatusCode))
	}
	return nil, &answered{e.Message, errhttp.ToNative(resp.StatusCode)}
}

// answered is an error of the node's: its words, and its class.
type answered struct {
	message string
	class   error
}

func (e *answered) Error() string { return e.message }
func (e *answered) Unwrap() error { return e.class }
