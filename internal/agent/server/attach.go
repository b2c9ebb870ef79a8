package server

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/kit/ids"
)

// Who runs a short command, and has seen that it runs, reads what it has printed so far and attaches for the rest, as `kubectl run -i` does. By then it may have
// ended. To refuse would have kubectl read the log once more, from the second on at which it has read it, and print all of it twice. So whoever attaches
// a moment after the end of a container gets what was not in the log yet when it was read, and the stream's end, as if he had come a moment earlier.
// Where nobody has read the log (older kubectls) it is refused, and they read it then.
const (
	// moment is how long ago a container may have ended, and its log have been read.
	moment = 10 * time.Second
	// brief is how long a container is given to end that has printed something since its log was read: an attachment to one that runs begins with what it prints
	// from then on, and one that is about to end prints no more.
	brief = 250 * time.Millisecond
	// streamBound is how long a client may take to open its streams, and to take what is sent.
	streamBound = 30 * time.Second
	// maxSeen bounds for how many containers it is remembered how far their logs were read.
	maxSeen = 1000
)

// attach passes the streams of a container on, or those of one that has just ended.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	pod, name, err := s.podAndContainer(r)
	if err != nil {
		answer(w, err)
		return
	}
	st, err := streamsOf(r.URL.Query())
	if err != nil {
		answer(w, err)
		return
	}
	address, err := s.attachTo(r.Context(), pod, name, st)
	if err == nil {
		s.pass(w, r, address)
		return
	}
	if path, from, ok := s.justEnded(r.Context(), pod, name); ok {
		s.rest(w, r, st, path, from)
		return
	}
	answer(w, edge(err))
}

// attachTo is the address at which the runtime serves the streams of the pod's container that runs.
func (s *Server) attachTo(ctx context.Context, pod *v1.Pod, name string, st streams) (string, error) {
	all, err := s.containers(ctx, pod, name)
	if err != nil {
		return "", err
	}
	id, err := runs(all, pod, name)
	if err != nil {
		return "", err
	}
	// The runtime goes first: what is printed after its answer comes with the stream, what was printed before is in the log then.
	resp, err := s.cfg.Runtime.Attach(ctx, &criv1.AttachRequest{ContainerId: string(id), Tty: st.tty, Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr})
	if err == nil && s.endsNow(ctx, pod, all[0]) {
		return "", failf(http.StatusNotFound, "container %q of pod %q has just ended", name, pod.Name)
	}
	return resp.GetUrl(), err
}

// endsNow says of a container that it has printed something since its log was read, and ended within a short time.
func (s *Server) endsNow(ctx context.Context, pod *v1.Pod, c *criv1.ContainerStatus) bool {
	from, ok := s.seen.of(ids.ContainerID(c.Id), time.Now())
	if !ok {
		return false
	}
	var more bytes.Buffer
	if err := podlog.Read(ctx, c.LogPath, podlog.Options{From: &from, Limit: new(int64(1))}, &more); err != nil || more.Len() == 0 {
		return false
	}
	ended, stop := s.ended(ctx, pod, ids.ContainerID(c.Id))
	defer stop()
	over := time.NewTimer(s.seen.brief)
	defer over.Stop()
	select {
	case <-ended:
		return ctx.Err() == nil
	case <-over.C:
		return false
	}
}

// justEnded is the log of a container that has ended a moment ago, and how far it was read then.
func (s *Server) justEnded(ctx context.Context, pod *v1.Pod, name string) (path string, from podlog.Position, ok bool) {
	all, err := s.containers(ctx, pod, name)
	if err != nil || len(all) == 0 || all[0].State != criv1.ContainerState_CONTAINER_EXITED {
		return "", podlog.Position{}, false
	}
	now := time.Now()
	from, ok = s.seen.of(ids.ContainerID(all[0].Id), now)
	return all[0].LogPath, from, ok && now.Sub(time.Unix(0, all[0].FinishedAt)) < s.seen.moment
}

// rest serves what a log has from a place on as the streams of a container that ends then.
func (s *Server) rest(w http.ResponseWriter, r *http.Request, st streams, path string, from podlog.Position) {
	remotecommand.ServeAttach(w, r, ended{path, from, st}, "", "", "",
		&remotecommand.Options{Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr, TTY: st.tty},
		streamBound, streamBound, []string{remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name,
			remotecommand.StreamProtocolV2Name, remotecommand.StreamProtocolV1Name})
}

// ended is a container that has ended, for who attaches to it.
type ended struct {
	path string
	from podlog.Position
	streams
}

var _ remotecommand.Attacher = ended{}

// AttachContainer implements remotecommand.Attacher.
func (e ended) AttachContainer(ctx context.Context, _, _, _ string, _ io.Reader, stdout, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if e.stdout {
		if err := podlog.Read(ctx, e.path, podlog.Options{From: &e.from, Stream: "stdout"}, stdout); err != nil {
			return err
		}
	}
	if !e.stderr {
		return nil
	}
	return podlog.Read(ctx, e.path, podlog.Options{From: &e.from, Stream: "stderr"}, stderr)
}

// seen remembers for a moment how far logs were read.
type seen struct {
	moment, brief time.Duration

	mu   sync.Mutex // guards logs
	logs map[ids.ContainerID]seenLog
}

type seenLog struct {
	end podlog.Position
	at  time.Time
}

// whole says that nothing of a log is left out.
func whole(o *podlog.Options) bool {
	return o.Tail == nil && o.Limit == nil && o.Since.IsZero() && o.Stream == ""
}

// note remembers that a log was read to there.
func (s *seen) note(id ids.ContainerID, end podlog.Position, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.logs, func(_ ids.ContainerID, l seenLog) bool { return now.Sub(l.at) >= s.moment })
	if s.logs == nil {
		s.logs = map[ids.ContainerID]seenLog{}
	}
	if len(s.logs) < maxSeen {
		s.logs[id] = seenLog{end, now}
	}
}

// of tells how far a log was read, and whether it was a moment ago.
func (s *seen) of(id ids.ContainerID, now time.Time) (podlog.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.logs[id]
	return l.end, ok && now.Sub(l.at) < s.moment
}
