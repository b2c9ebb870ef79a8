// Package dns is the role dns: the cluster's DNS server, by Kubernetes' DNS specification 1.1, for pods and for the machine itself.
//
// It guarantees:
//   - names of the cluster are answered from memory, as the API server's watches have told them last, also while nobody else can be reached;
//   - everything else is asked of the host's own name servers, and kept for as long as it may be;
//   - what a client can have of it at a time is bounded (server.Limits);
//   - the addresses that it listens at are the host's for as long as it runs, and are put back when they are taken away.
//
// It knows the API server by client-go, and nothing else of the node.
package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/dns/answer"
	"monopod.dev/monopod/internal/dns/server"
	"monopod.dev/monopod/internal/dns/upstream"
	"monopod.dev/monopod/internal/dns/view"
)

// Port is that of DNS.
const Port = server.Port

// userAgent is the role's name at the API server.
const userAgent = "monopod-dns"

// Config says what to serve, and where.
type Config struct {
	// Domain is the cluster's, such as cluster.local.
	Domain string
	// Addresses are those that are listened at, at Port; Services the ranges of services' addresses.
	Addresses []netip.Addr
	Port      uint16
	Services  []netip.Prefix
	// Upstreams are asked for all other names; none: the servers of ResolvConf.
	Upstreams  []netip.AddrPort
	ResolvConf string
	Limits     server.Limits
	Log        *slog.Logger
}

// Server is the role. Its sockets are open from New on.
type Server struct {
	cfg    Config
	log    *slog.Logger
	view   *view.View
	pods   *pods
	server *server.Server
	ready  chan struct{}
}

// New opens the sockets. Nothing is answered before Run; who asks meanwhile waits. Whoever does not call Run calls Close.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Log, view: view.New(), pods: &pods{}, ready: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	s.server, err = server.New(ctx, server.Config{
		Addresses: cfg.Addresses, Port: cfg.Port, Zone: &answer.Zone{Domain: cfg.Domain, Services: cfg.Services, Servers: cfg.Addresses}, View: s.view,
		Upstream: upstream.New(upstream.Config{Servers: cfg.Upstreams, ResolvConf: cfg.ResolvConf, Own: cfg.Addresses, Log: s.log}),
		Pods:     s.pods, Limits: cfg.Limits, Log: s.log,
	})
	return s, err
}

// Ready is closed when questions are answered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where it listens first.
func (s *Server) Addr() netip.AddrPort { return s.server.Addr() }

// Close closes the sockets.
func (s *Server) Close() { s.server.Close() }

// Run follows the API server and answers, until ctx ends, which is no error.
func (s *Server) Run(ctx context.Context, kube *rest.Config) error {
	config := rest.AddUserAgent(rest.CopyConfig(kube), userAgent)
	config.QPS = -1 // how much is asked at a time is bounded by the server
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Close()
		return fmt.Errorf("client of %s: %w", config.Host, err)
	}
	s.pods.client = client
	synced := make(chan struct{})
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.view.Follow(ctx, client, func() { close(synced) })
	}()
	defer func() { <-followed }()
	select {
	case <-synced:
	case <-ctx.Done():
		s.Close()
		return nil
	}
	s.log.InfoContext(ctx, "the cluster's DNS answers", "domain", s.cfg.Domain, "addresses", s.cfg.Addresses, "services", s.view.Services())
	close(s.ready)
	return s.server.Run(ctx)
}

// pods asks the API server for pods by their addresses.
type pods struct{ client kubernetes.Interface }

var _ server.Pods = (*pods)(nil)

// HasPod implements server.Pods. It is asked for rarely, so that nothing is kept for it: the API server has all pods in memory.
func (p *pods) HasPod(ctx context.Context, namespace string, address netip.Addr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, upstream.Patience)
	defer cancel()
	list, err := p.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		ResourceVersion: "0", FieldSelector: fields.OneTermEqualSelector("status.podIP", address.String()).String(),
	})
	if err != nil {
		return false, err
	}
	return len(list.Items) > 0, nil
}
