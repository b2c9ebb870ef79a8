package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// libraryOrigin is what WebSocket clients say that are no browser but have to say something (golang.org/x/net/websocket; Kubernetes' own tests do).
// A page has it only when it comes from port 80 of the user's own machine.
const libraryOrigin = "http://localhost"

// withOrigins refuses WebSockets that a page of another origin opens. A browser asks nobody before it opens one, and shows its user's certificate: any page
// that an administrator looks at could run commands in pods. (For other requests the browser asks first, and is not answered.)
func withOrigins(next http.Handler, allowed []string, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		origin := req.Header.Get("Origin")
		if origin == "" || !wsstream.IsWebSocketRequest(req) || sameOrigin(origin, req.Host) || origin == libraryOrigin || slices.Contains(allowed, origin) {
			next.ServeHTTP(w, req)
			return
		}
		err := apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf(
			"a page of the origin %q may not open WebSockets to this API server; allow it in apiServer.allowedOrigins, if it is yours", origin))
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
	})
}

// sameOrigin reports whether an origin is the server's own, by the name under which the client reached it.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "https" && strings.EqualFold(u.Host, host)
}
