package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin/protocol"
)

func (s *Server) drainer() (Drainer, error) {
	if s.cfg.Drain == nil {
		return nil, refuse(errdefs.ErrNotImplemented, "this process does not run the role agent: ask one that 'monopod up' or 'monopod node' runs")
	}
	return s.cfg.Drain, nil
}

func (s *Server) drained(w http.ResponseWriter, _ *http.Request) error {
	d, err := s.drainer()
	if err != nil {
		return err
	}
	_ = answer(w, http.StatusOK, d.Drain()) // a client that has gone hears nothing
	return nil
}

// drain begins to end the pods, and tells of it until it is finished, the client goes or the server ends. That the client goes changes nothing.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) error {
	d, err := s.drainer()
	if err != nil {
		return err
	}
	var req protocol.DrainRequest
	if req.Grace, err = duration(r, protocol.GraceParam); err != nil {
		return err
	}
	if req.CriticalGrace, err = duration(r, protocol.CriticalGraceParam); err != nil {
		return err
	}
	wait := r.URL.Query().Get(protocol.WaitParam)
	if wait != "" && wait != "true" && wait != "false" {
		return refuse(errdefs.ErrInvalidArgument, "%s is %q: use true or false", protocol.WaitParam, wait)
	}
	ticks, stop := d.Watch()
	defer stop()
	joined, err := d.Begin(req)
	if err != nil {
		return err
	}
	now := d.Drain()
	now.Joined = joined
	if wait == "false" {
		_ = answer(w, http.StatusOK, now) // a client that has gone hears nothing
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // every connection of ours has deadlines
		if json.NewEncoder(w).Encode(now) != nil || control.Flush() != nil || now.Finished || !now.Active {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-ticks:
		}
		now = d.Drain()
		now.Joined = joined
	}
}

// duration is a parameter; nil: it is not given.
func duration(r *http.Request, name string) (*time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return nil, refuse(errdefs.ErrInvalidArgument, "%s is %q: use a duration such as 30s", name, text)
	}
	return &d, nil
}
