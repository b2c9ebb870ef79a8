package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"monopod.dev/monopod/internal/apiserver/pki"
)

const (
	// idleTimeout is how long a connection may be without a request: as long as client-go's transports keep one. headerTimeout is how long a request's head
	// may take to come, a little less than a request.
	idleTimeout   = 90 * time.Second
	headerTimeout = 32 * time.Second
	maxHeader     = 1 << 20
	// streams are the requests that one connection may have at once; each may send bodyAhead bytes before somebody reads them, which most objects fit in.
	streams   = 100
	bodyAhead = 256 << 10
)

// front is the HTTPS server, which the library's server starts and ends as if it were a listener. The library's own has a queue for changes of its certificate,
// whose metrics wake an idle machine twice a second, and takes up to a minute to serve a new one.
type front struct {
	server   *http.Server
	listener net.Listener
}

var _ net.Listener = (*front)(nil)

// secure is how the library serves requests that come by a listener.
func secure(access *Access, l net.Listener, handler http.Handler) (*genericapiserver.SecureServingInfo, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(access.pki.CA) {
		return nil, fmt.Errorf("the certificate authority %s has no PEM certificate", access.pki.CAFile)
	}
	server := &http.Server{
		Handler: handler,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: access.certificate.get,
			// Whether a client's certificate is good is found out for each request, since there are other ways to say who one is.
			ClientAuth: tls.RequestClientCert,
			ClientCAs:  roots,
		},
		MaxHeaderBytes: maxHeader, IdleTimeout: idleTimeout, ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(faults{access.cfg.Log.Handler()}, slog.LevelWarn),
	}
	//nolint:staticcheck // the standard library lets a connection send 4 MB ahead at most: requests whose bodies are not read yet would hold up the others
	if err := http2.ConfigureServer(server, &http2.Server{
		IdleTimeout: idleTimeout, MaxConcurrentStreams: streams, MaxReadFrameSize: bodyAhead,
		MaxUploadBufferPerStream: bodyAhead, MaxUploadBufferPerConnection: streams * bodyAhead,
	}); err != nil {
		return nil, fmt.Errorf("HTTP/2: %w", err)
	}
	return &genericapiserver.SecureServingInfo{Listener: &front{server: server, listener: l}}, nil
}

// Accept implements net.Listener: it serves until Close, and accepts nothing for the library's server.
func (f *front) Accept() (net.Conn, error) {
	return nil, f.server.Serve(tls.NewListener(f.listener, f.server.TLSConfig))
}

// Close implements net.Listener. It returns when all requests have been answered, or after shutdownGrace.
func (f *front) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := f.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // what is left is cut (Server.hangUp)
}

// Addr implements net.Listener.
func (f *front) Addr() net.Addr { return f.listener.Addr() }

// servingCert is the certificate that is served.
type servingCert struct {
	current atomic.Pointer[tls.Certificate]
}

// set has a certificate served to all who connect from now on.
func (c *servingCert) set(pair pki.Pair) error {
	now, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("serving certificate %s: %w", pair.CertFile, err)
	}
	c.current.Store(&now)
	return nil
}

func (c *servingCert) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// faults tells what an HTTP server says of connections. Handshakes that fail are counted: they are somebody else's fault, and anybody can make any number.
type faults struct{ slog.Handler }

// Enabled implements slog.Handler.
func (faults) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (f faults) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		metrics.TLSHandshakeErrors.Inc()
		r.Level = slog.LevelDebug
	}
	if !f.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}
