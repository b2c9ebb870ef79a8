package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"monopod.dev/monopod/internal/runtime/errtext"
)

// options are the streams that a client has asked for.
type options struct{ stdin, stdout, stderr, tty bool }

// transport is an upgraded connection with the streams of one process.
type transport interface {
	process() Streams
	// finish tells the client how it ended and waits, for a bounded time, until the client has heard it.
	finish(how metav1.Status)
}

// command serves exec and attach, in the protocol that the client asks for.
func (s *session) command(opts options, run func(Streams) error) {
	var t transport
	var err error
	if wsstream.IsWebSocketRequest(s.req) {
		t, err = s.openChannels(opts)
	} else {
		t, err = s.openStreams(opts)
	}
	if err != nil {
		s.log.Debug("a stream was not opened", "error", err)
		return
	}
	client := t.process()
	how := status(run(client))
	if in, ok := client.Stdin.(io.Closer); ok {
		in.Close() // who writes to it waits no more
	}
	if s.ctx.Err() == nil {
		t.finish(how)
	}
}

// status is how a process ended, as clients of v4 and later read it.
func status(err error) metav1.Status {
	var exit interface{ ExitStatus() int }
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus()),
			}}},
		}
	}
	// API servers put "Internal error occurred: " before the words that they pass on to clients that come by WebSocket.
	how := apierrors.NewInternalError(err).Status()
	how.Message = errtext.Of(err)
	return how
}

// encodeStatus is what goes over the error stream: JSON from v4 on, else the message of a failure.
func encodeStatus(how metav1.Status, structured bool) []byte {
	switch {
	case structured:
		raw, err := json.Marshal(how)
		if err != nil { // a struct of strings
			panic(err)
		}
		return raw
	case how.Status == metav1.StatusSuccess:
		return nil
	}
	return []byte(how.Message)
}

// readSizes reads the sizes of a window until there are no more. Only the newest waits for who takes them.
func readSizes(r io.Reader, sizes chan Size) {
	for d := json.NewDecoder(r); ; {
		var size Size
		if d.Decode(&size) != nil {
			_, _ = io.Copy(io.Discard, r)
			return
		}
		for sent := false; !sent; {
			select {
			case sizes <- size:
				sent = true
			default:
				select {
				case <-sizes:
				default:
				}
			}
		}
	}
}

// offered are the subprotocols that a client names in a header, the best first.
func offered(h http.Header, name string) (protocols []string) {
	for _, line := range h.Values(name) {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" {
				protocols = append(protocols, p)
			}
		}
	}
	return protocols
}

// refuse answers a request that is not upgraded.
func (s *session) refuse(code int, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	http.Error(s.ResponseWriter, "unable to upgrade: "+err.Error(), code)
	return err
}
