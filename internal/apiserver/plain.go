package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"sync"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// withPlainAnswers has answers to clients of this host sent as they are. The library compresses what is large for everybody who can read it, and client-go
// can; the client has to undo it, and the way between them costs next to nothing. What is proxied is between the client and whom it asks.
func withPlainAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || info.Subresource == "proxy" || req.Header.Get("Accept-Encoding") == "" || !ofThisHost(req) {
			next.ServeHTTP(w, req)
			return
		}
		req.Header.Del("Accept-Encoding")
		if info.Verb != "list" {
			next.ServeHTTP(w, req)
			return
		}
		large, _ := largeWrites.Get().(*bufio.Writer)
		large.Reset(w)
		next.ServeHTTP(&gathered{w, large}, req)
		_ = large.Flush() // as with any write here: the client has gone
		large.Reset(nil)
		largeWrites.Put(large)
	})
}

// largeWrites gather what is written of a list: the library writes object by object, and HTTP/2 sends each 4 kB by themselves, through its own goroutine.
var largeWrites = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}

type gathered struct {
	http.ResponseWriter
	large *bufio.Writer
}

// Write implements http.ResponseWriter.
func (g *gathered) Write(p []byte) (int, error) { return g.large.Write(p) }

// ofThisHost reports whether a request comes over loopback, or from the very address that it was sent to.
func ofThisHost(req *http.Request) bool {
	remote, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return false
	}
	local, ok := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	from := remote.Addr().Unmap()
	return from.IsLoopback() || ok && from == local.AddrPort().Addr().Unmap()
}
