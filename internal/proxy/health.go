package proxy

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"monopod.dev/monopod/internal/proxy/plan"
)

// healthServer answers load balancers that ask whether this node has endpoints of a service (spec.healthCheckNodePort): 200 where it has some, 503 where not, and how
// many in JSON, as kube-proxy does.
type healthServer struct {
	log *slog.Logger

	mu    sync.Mutex
	ports map[string]*healthPort // by service
	// refused are the services whose port somebody else has; it is tried again when they are set again.
	refused map[string]bool
}

type healthPort struct {
	service string
	port    uint16
	server  *http.Server

	mu    sync.Mutex
	local int
}

func newHealthServer(log *slog.Logger) *healthServer {
	return &healthServer{log: log, ports: map[string]*healthPort{}, refused: map[string]bool{}}
}

// missing are the services for which nobody answers though somebody should.
func (h *healthServer) missing() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.refused))
}

// set says what is answered for a service; nil: nothing any more.
func (h *healthServer) set(service string, check *plan.HealthCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.ports[service]
	if p != nil && (check == nil || check.Port != p.port) {
		_ = p.server.Close()
		delete(h.ports, service)
		p = nil
	}
	said := h.refused[service]
	if delete(h.refused, service); check == nil {
		return
	}
	if p == nil {
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(check.Port))))
		if err != nil {
			if h.refused[service] = true; !said {
				h.log.Warn("load balancers cannot ask for the health of a service at this node; it is tried again", "service", service, "port", check.Port, "error", err)
			}
			return
		}
		p = &healthPort{service: service, port: check.Port}
		p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
		h.ports[service] = p
		go func() {
			if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				h.log.Warn("load balancers cannot ask for the health of a service at this node any more", "service", service, "port", p.port, "error", err)
			}
		}()
	}
	p.mu.Lock()
	p.local = check.Local
	p.mu.Unlock()
}

func (h *healthServer) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.ports {
		_ = p.server.Close()
	}
	clear(h.ports)
}

// ServeHTTP answers every path.
func (p *healthPort) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	namespace, name, _ := strings.Cut(p.service, "/")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":        map[string]string{"namespace": namespace, "name": name},
		"localEndpoints": local, "serviceProxyHealthy": true,
	}) // who asks has gone else
}
