package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/oneline"
	"monopod.dev/monopod/internal/kit/wait"
)

const (
	// defaultRetryDelay is how long the first wait before another attempt is; each further one is twice as long.
	defaultRetryDelay = 500 * time.Millisecond
	// MaxRetries is how many times something is tried again without any progress: after 15 s in all, by default.
	MaxRetries = 5
	// maxRetryAfter is the longest wait that a registry may ask for. A pull that would have to wait longer fails and says
	// so: whoever asked for it decides when to try again.
	maxRetryAfter = time.Minute
)

// Pause waits before attempt n+1 of something that failed, n from 1: longer each time. It ends early with ctx, with its error.
func (rs *Session) Pause(ctx context.Context, n int) error {
	return wait.For(ctx, backoff(rs.retryDelay, n, rand.Float64()))
}

// backoff is how long to wait before attempt n+1, n from 1: twice as long each time, and up to a quarter less by chance
// (random is 0 to 1), so that nodes that failed together do not come again together.
func backoff(base time.Duration, n int, random float64) time.Duration {
	d := base << (n - 1)
	return d - time.Duration(random*float64(d)/4)
}

// retryable says whether a status may be another one a little later.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// retryAfter reads the header Retry-After: seconds, or a date (RFC 9110, section 10.2.3). 0 is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseInt(v, 10, 64); err == nil {
		if s > int64(time.Hour*24*365/time.Second) {
			return time.Hour * 24 * 365
		}
		return max(0, time.Duration(s)*time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// statusError is an answer that stayed bad through all attempts.
type statusError struct {
	status string
	code   int
	says   string        // what the registry says about it
	after  time.Duration // when it wants to be asked again
	tries  int
}

func (e *statusError) Error() string {
	msg := e.status
	if e.says != "" {
		msg += ": " + e.says
	}
	if e.after > 0 {
		msg += fmt.Sprintf(" (it asks to be tried again in %s)", e.after.Round(time.Second))
	}
	if e.tries > 1 {
		msg += fmt.Sprintf(", %d times", e.tries)
	}
	return msg
}

func (*statusError) Unwrap() error { return errdefs.ErrUnavailable }

// maxAnswer is how much of an error's body is read.
const maxAnswer = 16 << 10

// fail makes the error of an answer, and gives the connection back. HEAD has no words: they are asked for.
func (t *retryTransport) fail(req *http.Request, resp *http.Response, after time.Duration, tries int) error {
	e := &statusError{status: resp.Status, code: resp.StatusCode, after: after, tries: tries}
	if req.Method == http.MethodHead {
		get := req.Clone(req.Context())
		get.Method = http.MethodGet
		if again, err := t.next.RoundTrip(get); err == nil {
			resp.Body.Close()
			resp = again
		}
	}
	if raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err == nil && resp.StatusCode == e.code {
		e.says = registrySays(raw)
	}
	resp.Body.Close()
	return e
}

// registrySays reads the message of an error answer: as the distribution specification has it, or of a token server
// (RFC 6749, section 5.2, and what the Docker Hub's says).
func registrySays(raw []byte) string {
	type saying struct{ Code, Message string }
	var answer struct {
		Errors      []saying `json:"errors"`
		Error       string   `json:"error"`
		Description string   `json:"error_description"`
		Details     string   `json:"details"`
	}
	if json.Unmarshal(raw, &answer) != nil {
		return ""
	}
	if answer.Error != "" || answer.Description != "" || answer.Details != "" {
		answer.Errors = append(answer.Errors, saying{answer.Error, cmp.Or(answer.Description, answer.Details)})
	}
	var said []string
	for _, e := range answer.Errors {
		s := strings.ToLower(e.Code)
		if e.Message != "" {
			s = strings.TrimPrefix(s+": "+e.Message, ": ")
		}
		if len(s) > 300 {
			s = s[:300] + "..."
		}
		said = append(said, oneline.Of(s))
	}
	return strings.Join(said, "; ")
}

// retryTransport asks again when a host is overloaded, or breaks the connection before it answers. Hosts that are
// followed by another one (mirrors) get no second chance: the next one is asked instead.
type retryTransport struct {
	session *Session
	next    http.RoundTripper
}

func (t *retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := t.next.RoundTrip(req)
		again := (req.Method == http.MethodGet || req.Method == http.MethodHead || req.GetBody != nil) && t.session.lastResort(askedHost(req))
		if err != nil {
			if !again || try > MaxRetries || !brokenConnection(err) {
				return nil, lastWord(req.Context(), err, try)
			}
			if req, err = t.wait(req, 0, try); err != nil {
				return nil, err
			}
			continue
		}
		if !retryable(resp.StatusCode) {
			return resp, nil
		}
		after := retryAfter(resp.Header, time.Now())
		if !again || try > MaxRetries || after > maxRetryAfter {
			return nil, t.fail(req, resp, after, try)
		}
		io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) //nolint:errcheck // so that the connection can be used again
		resp.Body.Close()
		if req, err = t.wait(req, after, try); err != nil {
			return nil, err
		}
	}
}

// triedError is a failure of a connection after all attempts, of a request that the callers are not to begin with again:
// containerd's resolver would, several times, when it saw what it was.
type triedError struct{ msg string }

func (e *triedError) Error() string { return e.msg }
func (*triedError) Unwrap() error   { return errdefs.ErrUnavailable }

// lastWord is the error of a request that is not tried again.
func lastWord(ctx context.Context, err error, tries int) error {
	var network net.Error
	switch {
	case ctx.Err() != nil:
		return err
	case brokenConnection(err) && tries > 1:
		return &triedError{fmt.Sprintf("%v, %d times", err, tries)}
	case brokenConnection(err), errors.As(err, &network) && network.Timeout():
		return &triedError{err.Error()}
	}
	return err
}

// wait waits, and returns the request for the next attempt.
func (t *retryTransport) wait(req *http.Request, after time.Duration, try int) (*http.Request, error) {
	if err := wait.For(req.Context(), max(after, backoff(t.session.retryDelay, try, rand.Float64()))); err != nil {
		return nil, err
	}
	if req.GetBody == nil {
		return req, nil
	}
	next := req.Clone(req.Context())
	var err error
	next.Body, err = req.GetBody()
	return next, err
}

func (t *retryTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// MayPass says whether a request that failed, or an answer that ended before its end, is worth another attempt.
func MayPass(err error) bool {
	var again *statusError
	var tried *triedError
	var status remoteerrors.ErrUnexpectedStatus
	switch {
	case errors.As(err, &again), errors.As(err, &tried), errors.As(err, &status):
		return false // it has been tried often enough
	case errdefs.IsNotFound(err), errdefs.IsPermissionDenied(err), errdefs.IsInvalidArgument(err), errdefs.IsFailedPrecondition(err):
		return false
	}
	return errdefs.IsUnavailable(err) || classOf(err) == errdefs.ErrUnavailable || brokenConnection(err)
}

// brokenConnection says whether a connection was there and broke. A host that cannot be reached at all is not asked again
// by a request: that is for the caller of a pull to decide.
func brokenConnection(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
