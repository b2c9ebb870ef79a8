package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// maxHeader is how many bytes of header fields an answer may have.
	maxHeader = 256 << 10
	// maxManifest is the largest manifest or index; containerd's resolver takes none that is much larger.
	maxManifest = 4 << 20
	// maxToken is the largest answer of a token server.
	maxToken = 1 << 20
	// maxRedirects is how many redirections of one request are followed.
	maxRedirects = 8
)

// watchedTransport notes the answers of hosts and watches the bodies: a host that sends nothing for the stall timeout
// ends the pull, or when another host follows it, its part in the pull.
type watchedTransport struct {
	session *Session
	next    http.RoundTripper
}

func (t *watchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	host := askedHost(req)
	if err := t.session.mayAsk(host); err != nil {
		return nil, err
	}
	if redirections(req) > maxRedirects {
		err := &triedError{fmt.Sprintf("%s redirects more than %d times", host, maxRedirects)}
		t.session.note(req.URL, false, err.Error())
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	watched := req.Clone(ctx)
	if isBlob(req) {
		// Layers are compressed already; and an offset counts in the bytes that the digest is of.
		watched.Header.Set("Accept-Encoding", "identity")
	}
	timer := t.session.watch(req.URL, host, cancel)
	resp, err := t.next.RoundTrip(watched)
	timer.Stop()
	if err != nil {
		err = stalledOr(ctx, req.Context(), err)
		cancel(nil)
		t.session.note(req.URL, false, err.Error())
		return nil, err
	}
	if resp.Request == nil || resp.Request == watched {
		resp.Request = req
	}
	at := resp.Request.URL // plain HTTP, when HTTPS was only tried
	answer := resp.Status
	if resp.StatusCode >= 400 && req.Method != http.MethodHead && !retryable(resp.StatusCode) {
		answer = says(resp)
	}
	t.session.note(at, resp.StatusCode < 400, answer)
	resp.Body = &watchedBody{ReadCloser: resp.Body, session: t.session, at: at, host: host, ctx: ctx, pull: req.Context(), cancel: cancel, left: bodyLimit(req)}
	if resp.StatusCode >= 300 {
		return resp, nil
	}
	t.session.noteServed(req)
	if isManifest(req) {
		if err := checkManifestAnswer(resp); err != nil {
			resp.Body.Close()
			t.session.note(at, false, err.Error())
			return nil, err
		}
	}
	return resp, nil
}

func isManifest(req *http.Request) bool {
	return strings.Contains(firstRequest(req).URL.Path, "/manifests/")
}

func isBlob(req *http.Request) bool { return strings.Contains(firstRequest(req).URL.Path, "/blobs/") }

// bodyLimit is how many bytes the body of an answer may have: who reads a layer or a configuration knows its size, who
// reads anything else takes all that comes.
func bodyLimit(req *http.Request) int64 {
	switch {
	case isManifest(req):
		return maxManifest
	case isBlob(req):
		return math.MaxInt64
	}
	return maxToken
}

// checkManifestAnswer sees that an answer may hold a manifest. A web page is none: a login page, or a proxy's error.
func checkManifestAnswer(resp *http.Response) error {
	if resp.ContentLength > maxManifest {
		return fmt.Errorf("the manifest has %d bytes, more than %d: %w", resp.ContentLength, maxManifest, errdefs.ErrInvalidArgument)
	}
	switch mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType {
	case "text/html", "application/xhtml+xml":
		return fmt.Errorf("the answer is a web page (%s), no manifest; a proxy's, or a login page: %w", mediaType, errdefs.ErrUnavailable)
	case "text/plain": // containerd takes it for a manifest of schema 1
		resp.Header.Set("Content-Type", "application/octet-stream")
	}
	return nil
}

// says is the status of a refusal with what the registry says about it, which is left to be read again.
func says(resp *http.Response) string {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if words := registrySays(raw); err == nil && words != "" {
		return resp.Status + ": " + words
	}
	return resp.Status
}

// watch ends a request with the pull, or alone, unless the returned timer is stopped in time.
func (rs *Session) watch(at *url.URL, host string, cancel context.CancelCauseFunc) *time.Timer {
	wait := rs.stall
	if wait < 0 {
		wait = math.MaxInt64
	}
	return time.AfterFunc(wait, func() {
		err := &stalledError{fmt.Sprintf("%s://%s sent nothing for %s", at.Scheme, at.Host, rs.stall)}
		if rs.lastResort(host) {
			rs.cancel(err)
		} else {
			rs.distrust(host, err)
		}
		cancel(err)
	})
}

// stalledError says that a host sent nothing for too long.
type stalledError struct{ msg string }

func (e *stalledError) Error() string { return e.msg }
func (*stalledError) Unwrap() error   { return errdefs.ErrUnavailable }

// stalledOr is the stall that ended a request, or why it failed else.
func stalledOr(request, pull context.Context, err error) error {
	var stalled *stalledError
	if pull.Err() == nil && errors.As(context.Cause(request), &stalled) {
		return stalled
	}
	return err
}

type watchedBody struct {
	io.ReadCloser
	session *Session
	at      *url.URL
	host    string          // that was asked, before any redirection
	ctx     context.Context // of the request
	pull    context.Context
	cancel  context.CancelCauseFunc
	left    int64 // how many bytes may still come
}

// brokenError says that a body ended before its end.
type brokenError struct {
	host string
	err  error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("the connection to %s broke: %v", e.host, e.err)
}

// Unwrap hides io.ErrUnexpectedEOF: it would make containerd's reader ask for the rest at once, again and again.
// Who reads it waits before (Session.Pause).
func (*brokenError) Unwrap() error { return errdefs.ErrUnavailable }

func (b *watchedBody) Read(p []byte) (int, error) {
	timer := b.session.watch(b.at, b.host, b.cancel)
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, fmt.Errorf("the answer of %s is longer than any manifest or token: %w", b.at.Host, errdefs.ErrInvalidArgument)
	}
	if err == nil || err == io.EOF || b.pull.Err() != nil {
		return n, err
	}
	if err = stalledOr(b.ctx, b.pull, err); errdefs.IsUnavailable(err) {
		return n, err
	}
	return n, &brokenError{host: b.at.Host, err: err}
}

func (b *watchedBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
