package apiserver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Compression is left to clients of other hosts and to what is proxied.
func TestWithPlainAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		remote, local, subresource string
		plain                      bool
	}{
		"loopback":                 {"127.0.0.1:40000", "127.0.0.1", "", true},
		"loopback, IPv6":           {"[::1]:40000", "::1", "", true},
		"the host's own address":   {"192.0.2.7:40000", "192.0.2.7", "", true},
		"the same, by IPv6":        {"[::ffff:192.0.2.7]:40000", "192.0.2.7", "", true},
		"another host":             {"192.0.2.8:40000", "192.0.2.7", "", false},
		"a proxied request":        {"127.0.0.1:40000", "127.0.0.1", "proxy", false},
		"an address that is none":  {"pipe", "127.0.0.1", "", false},
		"a status, over loopback":  {"127.0.0.1:40000", "127.0.0.1", "status", true},
		"another host, with a pod": {"10.0.0.5:40000", "10.0.0.1", "", false},
	} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(c.local), Port: 6443}))
		ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{Subresource: c.subresource})
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		req.RemoteAddr = c.remote
		req.Header.Set("Accept-Encoding", "gzip")
		var got string
		withPlainAnswers(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Accept-Encoding") })).
			ServeHTTP(httptest.NewRecorder(), req)
		if plain := got == ""; plain != c.plain {
			t.Errorf("%s: what is accepted is %q", name, got)
		}
	}
}
