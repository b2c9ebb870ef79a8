package handlers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxHeader is how long the headers of an answer may be, in bytes.
const maxHeader = 1 << 20

// web makes HTTP requests, each on a connection of its own, by no proxy, and to servers of any certificate.
type web struct{ client *http.Client }

func newWeb() web {
	return web{&http.Client{CheckRedirect: redirect, Transport: byScheme{tls: &http.Transport{
		// Probes are about what answers at an address, which no certificate names.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		DialContext:            dialer.DialContext,
	}}}}
}

// byScheme is one round trip: by http.Transport with TLS, by plain otherwise.
type byScheme struct{ tls *http.Transport }

func (b byScheme) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" {
		return plain(req)
	}
	return b.tls.RoundTrip(req)
}

// readers and writers are the buffers of requests that have ended.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	writers = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// plain is one HTTP/1.1 request on a connection of its own. http.Transport does the same with three goroutines and twice the time: it is made for
// connections that are used again, and nearly all probes of a node come through here.
func plain(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	address := req.URL.Host
	if req.URL.Port() == "" {
		address = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, orContext(ctx, err)
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	b := &body{conn: conn, stop: stop, ctx: ctx, r: readers.Get().(*bufio.Reader)}
	resp, err := b.exchange(req)
	if err != nil {
		b.Close()
		return nil, orContext(ctx, err)
	}
	b.Reader, resp.Body = resp.Body, b
	return resp, nil
}

// orContext is the context's error when that has ended: it is why the other one came.
func orContext(ctx context.Context, err error) error {
	var timeout net.Error
	if ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout() {
		if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
			return context.DeadlineExceeded
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// body is an answer's body, and what the connection has in use until it is closed.
type body struct {
	io.Reader
	conn net.Conn
	stop func() bool
	ctx  context.Context
	r    *bufio.Reader
}

// exchange sends the request and reads the head of the answer.
func (b *body) exchange(req *http.Request) (*http.Response, error) {
	out := writers.Get().(*bytes.Buffer)
	defer func() {
		out.Reset()
		writers.Put(out)
	}()
	closing := *req
	closing.Close = true
	if err := closing.Write(out); err != nil {
		return nil, err
	}
	if _, err := b.conn.Write(out.Bytes()); err != nil {
		return nil, err
	}
	b.r.Reset(io.LimitReader(b.conn, maxHeader+MaxOutput))
	if _, err := b.r.Peek(1); err != nil {
		return nil, err
	}
	for range 5 { // an answer may come after some that only say that it will
		resp, err := http.ReadResponse(b.r, req)
		if err != nil {
			return nil, fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
	return nil, errors.New("net/http: too many 1xx informational responses")
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = orContext(b.ctx, err)
	}
	return n, err
}

// Close ends the connection. What is left of the body is not read.
func (b *body) Close() error {
	b.stop()
	if b.r != nil {
		b.r.Reset(nil)
		readers.Put(b.r)
		b.r = nil
	}
	return b.conn.Close()
}
