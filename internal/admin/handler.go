package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/report"
)

// handler bounds the requests and leads each to its method. This is where classes of errors become HTTP's numbers.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+protocol.DevicesPath, s.edge(s.devices))
	mux.HandleFunc("GET "+protocol.StatusPath, s.edge(s.status))
	mux.HandleFunc("GET "+protocol.TracePath, s.edge(s.trace))
	mux.HandleFunc("GET "+protocol.VolumesPath, s.edge(s.volumes))
	mux.HandleFunc("GET "+protocol.DrainPath, s.edge(s.drained))
	mux.HandleFunc("POST "+protocol.DrainPath, s.edge(s.drain))
	s.snapshotRoutes(mux)
	mux.HandleFunc("/", s.edge(func(_ http.ResponseWriter, r *http.Request) error {
		return refuse(errdefs.ErrNotFound, "%s %s is nothing that this node knows: the command may be of another version than the node", r.Method, r.URL.Path)
	}))
	return mux
}

// edge calls what handles a request without a body.
func (s *Server) edge(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return s.taken(func(w http.ResponseWriter, r *http.Request) error {
		if r.ContentLength != 0 {
			return refuse(errdefs.ErrInvalidArgument, "%s takes no body", r.URL.Path)
		}
		return handle(w, r)
	})
}

// taken calls what handles a request if there is a place for it, and answers an error that it returns. Such a handler has written nothing.
func (s *Server) taken(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.requests <- struct{}{}:
			defer func() { <-s.requests }()
		default:
			fail(w, refuse(errdefs.ErrResourceExhausted, "%d requests are under way, and no more are taken: end some 'monopod device ls --watch'", maxRequests))
			return
		}
		begin := time.Now()
		err := handle(w, r)
		s.cfg.Log.Debug("administration call", "path", r.URL.Path, "took", time.Since(begin), "error", err)
		if err != nil {
			fail(w, err)
		}
	}
}

// refusal is an error that is told in its own words; its class becomes the number of the answer.
type refusal struct {
	message string
	class   error
}

func (e *refusal) Error() string { return e.message }
func (e *refusal) Unwrap() error { return e.class }

func refuse(class error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), class}
}

func fail(w http.ResponseWriter, err error) {
	_ = answer(w, errhttp.ToHTTP(err), protocol.Error{Message: err.Error()}) // a client that has gone hears nothing
}

// answer sends one value. The client may take writeTime to read it.
func answer(w http.ResponseWriter, code int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // every connection of ours has deadlines
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, err = w.Write(append(body, '\n'))
	return err
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	_ = answer(w, http.StatusOK, s.cfg.Status(ctx)) // a client that has gone hears nothing
	return nil
}

func (s *Server) trace(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Trace == nil {
		return refuse(errdefs.ErrNotImplemented, "this process knows no pods: ask one that 'monopod up', 'monopod node' or 'monopod apiserver' runs")
	}
	namespace, name := r.URL.Query().Get(protocol.NamespaceParam), r.URL.Query().Get(protocol.PodParam)
	if namespace == "" || name == "" {
		return refuse(errdefs.ErrInvalidArgument, "%s is %q and %s %q: name both", protocol.NamespaceParam, namespace, protocol.PodParam, name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	t, err := s.cfg.Trace(ctx, namespace, name)
	if err != nil {
		return err
	}
	_ = answer(w, http.StatusOK, t) // a client that has gone hears nothing
	return nil
}

func (s *Server) volumes(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Volumes == nil {
		return refuse(errdefs.ErrNotImplemented, "this process makes no volumes: ask one that 'monopod up' runs")
	}
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	_ = answer(w, http.StatusOK, s.cfg.Volumes(ctx)) // a client that has gone hears nothing
	return nil
}

func (s *Server) devices(w http.ResponseWriter, r *http.Request) error {
	if s.cfg.Devices == nil {
		return refuse(errdefs.ErrNotImplemented, "this process does not run the role devices: ask one that 'monopod up' or 'monopod node' runs")
	}
	resource := r.URL.Query().Get(protocol.ResourceParam)
	switch watch := r.URL.Query().Get(protocol.WatchParam); watch {
	case "true":
		s.watch(w, r, resource)
		return nil
	case "", "false":
	default:
		return refuse(errdefs.ErrInvalidArgument, "%s is %q: use true or false", protocol.WatchParam, watch)
	}
	list := s.list(resource)
	if resource != "" && len(list.Devices) == 0 {
		return refuse(errdefs.ErrNotFound, "no device of %s is known here", resource)
	}
	_ = answer(w, http.StatusOK, list) // a client that has gone hears nothing
	return nil
}

// list is how the devices are now, of one resource or of all. A grant that comes while it is made is told: who watches gets a tick for it.
func (s *Server) list(resource string) report.List {
	l := report.New(s.cfg.Devices.Devices(), s.cfg.Devices.Grants(), s.cfg.Devices.Problems())
	if resource != "" {
		l = l.Of(resource)
	}
	return l
}

// watch tells what there is, and then each change, until the client goes or the server ends. A client that reads slowly hears of the last state
// after several changes, not of each; one that does not read for writeTime is cut off.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	ticks, stop := s.cfg.Devices.Watch()
	defer stop()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(events []report.Event) error {
		if err := control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return err
		}
		enc := json.NewEncoder(w)
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return control.Flush()
	}
	last := s.list(resource)
	err := send(report.Begin(last))
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-ticks:
		}
		next := s.list(resource)
		if events := report.Diff(last, next); len(events) > 0 {
			err = send(events)
		}
		last = next
	}
}
