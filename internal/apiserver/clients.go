package apiserver

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"monopod.dev/monopod/internal/apiserver/pki"
)

// ownClient is a client certificate of this process's own clients, which have it from memory. When it is renewed they use the new one at once: connections
// that were made with the old one are closed, and who watches on them watches anew. (client-go's way, to read the files from time to time, wakes an idle
// machine twice a second for each client.)
type ownClient struct {
	certificate atomic.Pointer[tls.Certificate]
	dialer      *connrotation.Dialer
	// get and dial are what client-go tells transports from each other by.
	get  *transport.GetCertHolder
	dial *transport.DialHolder
}

func newOwnClient() *ownClient {
	c := &ownClient{dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)}
	c.get = &transport.GetCertHolder{GetCert: func() (*tls.Certificate, error) { return c.certificate.Load(), nil }}
	c.dial = &transport.DialHolder{Dial: c.dialer.DialContext}
	return c
}

// set has the clients use a certificate from now on.
func (c *ownClient) set(pair pki.Pair) error {
	now, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("client certificate %s: %w", pair.CertFile, err)
	}
	if before := c.certificate.Swap(&now); before != nil && !bytes.Equal(before.Certificate[0], now.Certificate[0]) {
		c.dialer.CloseAll() // the server would refuse them when the old certificate ends
	}
	return nil
}

// config is a configuration whose clients send the certificate that there is when they connect. It is for requests and watches of client-go: what opens a
// connection by itself (exec, attach, port-forward) finds no certificate in it.
func (c *ownClient) config(host string, ca []byte) (*rest.Config, error) {
	own, err := transport.New(&transport.Config{TLS: transport.TLSConfig{CAData: ca, GetCertHolder: c.get}, DialHolder: c.dial})
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		// Not Transport, which a copy without credentials (rest.AnonymousClientConfig) keeps, and with which there is no CAData.
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return own },
	}, nil
}
