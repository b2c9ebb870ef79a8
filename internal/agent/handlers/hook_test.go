package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestHTTPHooks(t *testing.T) {
	type visit struct{ agent, auth, path string }
	visits := make(chan visit, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visits <- visit{r.UserAgent(), r.Header.Get("Authorization"), r.URL.Path}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, strings.Repeat("x", 3*MaxOutput))
	})
	address := serve(t, handler)
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	h := New(nil)
	headers := []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}}
	for _, c := range []struct {
		name, address string
		scheme        v1.URIScheme
		want          Answer
		auth          string
	}{
		{"any answer is a success", address, v1.URISchemeHTTP, Answer{Result: Success}, "secret"},
		{"with TLS too", secure.Listener.Addr().String(), v1.URISchemeHTTPS, Answer{Result: Success}, "secret"},
		{"a server without TLS is asked again, and not told the secret", address, v1.URISchemeHTTPS,
			Answer{Warning, "request to HTTPS lifecycle hook " + address + " got HTTP response, retry with HTTP succeeded"}, ""},
	} {
		on, port := subject(c.address)
		a := h.Hook(t.Context(), on, &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: c.scheme, Path: "/hook", Port: port, HTTPHeaders: headers}})
		if a != c.want {
			t.Errorf("%s: %v, want %v", c.name, a, c.want)
			continue
		}
		if got, want := <-visits, (visit{"kube-lifecycle/" + h.version, c.auth, "/hook"}); got != want {
			t.Errorf("%s: the server saw %v, want %v", c.name, got, want)
		}
	}
	on, port := subject("127.0.0.1:1")
	a := h.Hook(t.Context(), on, &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/hook", Port: port}})
	want := `HTTP lifecycle hook (/hook) for Container "app" in Pod "p_ns(u)" failed - error: Get "http://127.0.0.1:1/hook": dial tcp 127.0.0.1:1: connect: connection refused`
	if a.Result != Failure || a.Output != want {
		t.Errorf("nobody listens: %v, want %q", a, want)
	}
	on.IP = ""
	if a := h.Hook(t.Context(), on, &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/hook", Port: port}}); a.Result != Failure {
		t.Errorf("without an address: %v", a)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, port := subject("127.0.0.1:1")
		sleep := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}
		start := time.Now()
		if a := New(nil).Hook(t.Context(), on, sleep); a.Result != Success || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", a, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		want := `Sleep lifecycle hook (5) for Container "app" in Pod "p_ns(u)" failed - error: container terminated before sleep hook finished`
		if a := New(nil).Hook(ctx, on, sleep); a.Result != Failure || a.Output != want || time.Since(start) != 7*time.Second {
			t.Errorf("%v after %v, want %q", a, time.Since(start), want)
		}
		if a := New(nil).Hook(t.Context(), on, &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}); a.Result != Success {
			t.Errorf("no time at all: %v", a)
		}
		for _, hook := range []v1.LifecycleHandler{{}, {TCPSocket: &v1.TCPSocketAction{Port: port}}} {
			if a := New(nil).Hook(t.Context(), on, &hook); a.Result != Failure || !strings.HasPrefix(a.Output, "Cannot run handler: invalid handler: ") {
				t.Errorf("%v: %v", hook, a)
			}
		}
	})
}
