package controllers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestGate: of many requests that write so many are under way, none that reads waits for them, and who gives up waiting has not asked.
func TestGate(t *testing.T) {
	under, asked := make(chan struct{}, 1000), atomic.Int64{}
	release := make(chan struct{})
	g := newGate(roundTrip(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		if r.Method != http.MethodGet {
			under <- struct{}{}
			<-release
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	send := func(ctx context.Context, method string) error {
		r, err := http.NewRequestWithContext(ctx, method, "https://here/", http.NoBody)
		if err != nil {
			return err
		}
		response, err := g.RoundTrip(r)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	var all sync.WaitGroup
	for range 3 * writes {
		all.Go(func() {
			if err := send(t.Context(), http.MethodPost); err != nil {
				t.Error(err)
			}
		})
	}
	for range writes {
		<-under
	}
	if err := send(t.Context(), http.MethodGet); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(gone, http.MethodPost); !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up gets %v", err)
	}
	if n := asked.Load(); n != writes+1 {
		t.Errorf("%d requests are under way, and one that reads", n-1)
	}
	close(release)
	all.Wait()
	if n := asked.Load(); n != 3*writes+1 {
		t.Errorf("%d requests were made, want %d", n, 3*writes+1)
	}
}

// TestTooManyRequests: what the API server puts off is sent again when it said.
func TestTooManyRequests(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"made"}}`))
	}))
	defer server.Close()
	s, err := New(Config{Kube: &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}}).share(nil)
	if err != nil {
		t.Fatal(err)
	}
	var client kubernetes.Interface = s.client
	begin := time.Now()
	made, err := client.CoreV1().ConfigMaps("n").Create(t.Context(), &corev1.ConfigMap{}, metav1.CreateOptions{})
	if err != nil || made.Name != "made" || asked.Load() != 2 || time.Since(begin) < time.Second {
		t.Errorf("%v, %v after %v and %d requests", made, err, time.Since(begin), asked.Load())
	}
}
