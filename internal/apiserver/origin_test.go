package apiserver_test

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
)

// TestOrigins: pages of others open no WebSockets, whatever certificate the browser shows for its user.
func TestOrigins(t *testing.T) {
	cfg := newConfig(t)
	cfg.AllowedOrigins = []string{"https://console.example.com"}
	i := start(t, cfg)
	defer i.end(t)
	admin := i.AdminConfig()
	admin.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	for origin, refused := range map[string]bool{
		"": false, "https://" + at.Host: false, "https://console.example.com": false, "http://localhost": false,
		"https://evil.example.com": true, "http://" + at.Host: true, "https://localhost:3000": true, "null": true, "https://console.example.com.evil.example.com": true,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin.Host+"/api/v1/namespaces/default/pods/none/exec?command=id&stdout=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		req.Header.Set("Sec-WebSocket-Version", "13")
		req.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		// There is no such pod: that is the answer to who is let in.
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusNotFound}[refused]; resp.StatusCode != want {
			t.Errorf("origin %q: %s, want %d", origin, resp.Status, want)
		}
	}
}
