package server

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/podstats"
	"monopod.dev/monopod/internal/agent/probes"
)

// Stats is what the node and its pods use. One collection serves all who ask at about the same time; what it returns is not changed.
type Stats interface {
	Summary(ctx context.Context) (*stats.Summary, error)
	CPUAndMemory(ctx context.Context) (*stats.Summary, error)
	Snapshot(ctx context.Context) (*podstats.Snapshot, error)
	// Metrics is Unimplemented, as gRPC has it, where the runtime has none.
	Metrics(ctx context.Context) (*podstats.Metrics, error)
}

// Probes counts the results of probes.
type Probes interface {
	// Series are those of the containers that there are.
	Series() []probes.Series
}

// numbers routes what tells of usage and of the agent itself.
func (s *Server) numbers(mux *http.ServeMux) {
	if s.cfg.Stats != nil {
		mux.HandleFunc("GET /stats/summary", s.summary)
		mux.HandleFunc("GET /metrics/resource", s.resourceMetrics)
		mux.HandleFunc("GET /metrics/cadvisor", s.cadvisorMetrics)
	}
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.cfg.Metrics.Handler())
	}
	mux.HandleFunc("GET /metrics/probes", s.probeMetrics)
	if s.cfg.Config != nil {
		mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
			s.answerJSON(w, map[string]any{"kubeletconfig": s.cfg.Config()})
		})
	}
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	collect := s.cfg.Stats.Summary
	if q := r.URL.Query().Get("only_cpu_and_memory"); q != "" {
		only, err := strconv.ParseBool(q)
		if err != nil {
			answer(w, failf(http.StatusBadRequest, "only_cpu_and_memory=%q is not a boolean", q))
			return
		}
		if only {
			collect = s.cfg.Stats.CPUAndMemory
		}
	}
	all, err := collect(r.Context())
	if err != nil {
		answer(w, edge(err))
		return
	}
	s.answerJSON(w, all)
}

// resourceMetrics answers also when nothing can be told: then that is what it tells.
func (s *Server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	all, err := s.cfg.Stats.CPUAndMemory(r.Context())
	if err != nil {
		s.cfg.Log.Warn("the metrics of resources are not told", "error", err)
		all = nil
	}
	s.answerText(w, metrics.Resource(all))
}

func (s *Server) cadvisorMetrics(w http.ResponseWriter, r *http.Request) {
	snapshot, err := s.cfg.Stats.Snapshot(r.Context())
	var own *podstats.Metrics
	if err == nil {
		own, err = s.cfg.Stats.Metrics(r.Context())
		if status.Code(err) == codes.Unimplemented {
			err = nil
		}
	}
	if err != nil {
		s.cfg.Log.Warn("the metrics of containers are not told", "error", err)
		s.answerText(w, metrics.CAdvisor(runtime.NumCPU(), nil, nil))
		return
	}
	s.answerText(w, s.written.cadvisor(snapshot, own))
}

// written are the metrics of containers as they were written last, so that those who share a collection share the writing too.
type written struct {
	mu       sync.Mutex // guards what follows
	snapshot *podstats.Snapshot
	own      *podstats.Metrics
	text     []byte
}

func (t *written) cadvisor(snapshot *podstats.Snapshot, own *podstats.Metrics) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.snapshot != snapshot || t.own != own || t.text == nil {
		t.snapshot, t.own, t.text = snapshot, own, metrics.CAdvisor(runtime.NumCPU(), snapshot, own)
	}
	return t.text
}

func (s *Server) probeMetrics(w http.ResponseWriter, _ *http.Request) {
	var series []probes.Series
	if s.cfg.Probes != nil {
		series = s.cfg.Probes.Series()
	}
	s.answerText(w, metrics.Probes(series))
}

func (s *Server) answerText(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", metrics.ContentType)
	if _, err := w.Write(text); err != nil {
		s.cfg.Log.Debug("metrics were not read to their end", "error", err)
	}
}

func (s *Server) answerJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.cfg.Log.Debug("an answer was not read to its end", "error", err)
	}
}

// counted counts the requests that are let in. The path is the pattern's that serves them, so that nobody makes up names.
func (s *Server) counted(mux *http.ServeMux) http.Handler {
	if s.cfg.Metrics == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := "other"
		if _, pattern := mux.Handler(r); pattern != "" {
			_, path, _ = strings.Cut(pattern, "/")
			path, _, _ = strings.Cut(path, "/{")
		}
		long := path == "exec" || path == "attach" || path == "portForward" || path == "containerLogs" && r.URL.Query().Get("follow") == "true"
		defer s.cfg.Metrics.Request(r.Method, path, long)()
		mux.ServeHTTP(w, r)
	})
}
