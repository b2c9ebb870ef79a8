package apiserver

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// certTrust is for how long a client's certificate is taken for what it was found to be. It ends with the certificate, too.
	certTrust = time.Minute
	// certsKnown bounds the certificates that are remembered.
	certsKnown = 1000
)

// certificates remembers which client certificates were found good. The library verifies the signatures of a client's certificate for each request, which
// is a quarter of the time of a GET; whether a connection's client has the certificate's key was found out when the connection was made.
type certificates struct {
	// verify authenticates by certificate.
	verify authenticator.Request
	now    func() time.Time

	mu    sync.RWMutex
	known map[[sha256.Size]byte]knownCertificate
}

type knownCertificate struct {
	response *authenticator.Response
	until    time.Time
}

var _ authenticator.Request = (*certificates)(nil)

func newCertificates(verify authenticator.Request) *certificates {
	return &certificates{verify: verify, now: time.Now, known: map[[sha256.Size]byte]knownCertificate{}}
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	// What comes of a chain of several depends on all of them; few clients have one.
	if req.TLS == nil || len(req.TLS.PeerCertificates) != 1 {
		return c.verify.AuthenticateRequest(req)
	}
	leaf := req.TLS.PeerCertificates[0]
	sum, now := sha256.Sum256(leaf.Raw), c.now()
	c.mu.RLock()
	known, ok := c.known[sum]
	c.mu.RUnlock()
	if ok && now.Before(known.until) {
		response := *known.response
		return &response, true, nil
	}
	response, ok, err := c.verify.AuthenticateRequest(req)
	if err != nil || !ok {
		return response, ok, err
	}
	until := now.Add(certTrust)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	kept := *response
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= certsKnown {
		clear(c.known)
	}
	c.known[sum] = knownCertificate{&kept, until}
	return response, true, nil
}
