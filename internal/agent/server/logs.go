package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

// containerLogs sends a container's log.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	opts, previous, err := logOptions(r.URL.Query(), time.Now())
	if err != nil {
		answer(w, failf(http.StatusBadRequest, "%v", err))
		return
	}
	pod, name, err := s.podAndContainer(r)
	if err != nil {
		answer(w, err)
		return
	}
	ctx := r.Context()
	c, err := s.logged(ctx, pod, name, previous)
	if err != nil {
		answer(w, err)
		return
	}
	opts.End = &podlog.Position{}
	if opts.Follow {
		ended, stop := s.ended(ctx, pod, ids.ContainerID(c.Id))
		defer stop()
		opts.Ended, opts.Changes = ended, &s.changes
	}
	w.Header().Set("Content-Type", "text/plain")
	out := &flusher{w: w, each: opts.Follow, controller: http.NewResponseController(w)}
	if opts.Follow {
		// The client learns at once that it is connected, even to a silent container.
		if err := out.FlushError(); err != nil {
			return
		}
	}
	err = podlog.Read(ctx, c.LogPath, opts, out)
	switch {
	case err == nil:
		if whole(&opts) {
			s.seen.note(ids.ContainerID(c.Id), *opts.End, time.Now())
		}
	case ctx.Err() != nil:
	case errors.Is(err, os.ErrNotExist) && !out.began:
		answer(w, failf(http.StatusNotFound, "container %s of pod %s/%s has no log", name, pod.Namespace, pod.Name))
	case !out.began:
		answer(w, err)
	default:
		s.cfg.Log.Warn("a log was not sent to its end", "pod", pod.Namespace+"/"+pod.Name, "container", name, "error", err)
		// The client must not take this for the log's end.
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http: it cuts the answer, as nothing else does
	}
}

// logOptions reads the query of PodLogOptions.
func logOptions(q url.Values, now time.Time) (opts podlog.Options, previous bool, err error) {
	boolean := func(key string) bool {
		v, perr := strconv.ParseBool(q.Get(key))
		if q.Get(key) != "" && perr != nil {
			err = errors.Join(err, fmt.Errorf("%s=%q is not a boolean", key, q.Get(key)))
		}
		return v
	}
	number := func(key string, least int64) *int64 {
		if q.Get(key) == "" {
			return nil
		}
		v, perr := strconv.ParseInt(q.Get(key), 10, 64)
		if perr != nil || v < least {
			err = errors.Join(err, fmt.Errorf("%s=%q must be a number, %d or more", key, q.Get(key), least))
			return nil
		}
		return &v
	}
	opts.Follow, opts.Timestamps = boolean("follow"), boolean("timestamps")
	previous = boolean("previous")
	opts.Tail, opts.Limit = number("tailLines", 0), number("limitBytes", 1)
	if seconds := number("sinceSeconds", 1); seconds != nil {
		opts.Since = now.Add(-pods.Seconds(*seconds))
	}
	if t := q.Get("sinceTime"); t != "" {
		since, perr := time.Parse(time.RFC3339, t)
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("sinceTime=%q is not a time as in RFC 3339", t))
		}
		if q.Get("sinceSeconds") != "" {
			err = errors.Join(err, errors.New("at most one of sinceTime and sinceSeconds may be given"))
		}
		opts.Since = since
	}
	switch stream := q.Get("stream"); stream {
	case "", "All":
	case v1.LogStreamStdout:
		opts.Stream = "stdout"
	case v1.LogStreamStderr:
		opts.Stream = "stderr"
	default:
		err = errors.Join(err, fmt.Errorf("stream=%q must be All, Stdout or Stderr", stream))
	}
	return opts, previous, err
}

// logged is the container whose log is meant: the newest that was started, or the one before it.
func (s *Server) logged(ctx context.Context, pod *v1.Pod, name string, previous bool) (*criv1.ContainerStatus, error) {
	all, err := s.containers(ctx, pod, name)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c *criv1.ContainerStatus) bool {
		return c.State == criv1.ContainerState_CONTAINER_CREATED
	})
	if previous {
		// While a dead container waits for its successor it is the last one that ended.
		if len(all) > 0 && (all[0].State == criv1.ContainerState_CONTAINER_RUNNING || waiting(pod, name) == "") {
			all = all[1:]
		}
		if len(all) == 0 {
			return nil, failf(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name, pod.Name)
		}
		return all[0], nil
	}
	if len(all) == 0 {
		return nil, failf(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", name, pod.Name,
			cmp.Or(waiting(pod, name), plan.ReasonContainerCreating))
	}
	return all[0], nil
}

// waiting is why a container waits, as the pod's status tells; empty: it does not.
func waiting(pod *v1.Pod, name string) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.Name == name && c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
	}
	return ""
}

// containers are the pod's containers of this name, the newest first.
func (s *Server) containers(ctx context.Context, pod *v1.Pod, name string) ([]*criv1.ContainerStatus, error) {
	list, err := s.cfg.Runtime.ListContainers(ctx, &criv1.ListContainersRequest{
		Filter: &criv1.ContainerFilter{LabelSelector: podspec.ContainerSelector(pod.UID, name)},
	})
	if err != nil {
		return nil, fmt.Errorf("list the containers of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	slices.SortFunc(list.Containers, func(a, b *criv1.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	var all []*criv1.ContainerStatus
	for _, c := range list.Containers {
		st, err := s.cfg.Runtime.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			// Removed since.
			continue
		}
		all = append(all, st.Status)
	}
	return all, nil
}

// ended returns a channel that is closed when the container no longer runs.
func (s *Server) ended(ctx context.Context, pod *v1.Pod, id ids.ContainerID) (ended <-chan struct{}, stop func()) {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	ticks, unwatch := s.cfg.Pods.Watch(pod.UID)
	go func() {
		defer close(done)
		for {
			resp, err := s.cfg.Runtime.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: string(id)})
			if err != nil || resp.GetStatus().GetState() != criv1.ContainerState_CONTAINER_RUNNING {
				return
			}
			select {
			case <-ticks:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done, func() {
		cancel()
		unwatch()
		<-done
	}
}

// flusher hands log lines on: each at once when somebody follows, else as the buffer fills.
type flusher struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	each       bool
	// began: something was written.
	began bool
}

func (f *flusher) Write(p []byte) (int, error) {
	f.began = true
	return f.w.Write(p)
}

// FlushError sends what is buffered.
func (f *flusher) FlushError() error {
	if !f.each {
		return nil
	}
	f.began = true
	return f.controller.Flush()
}
