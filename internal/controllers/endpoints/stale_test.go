package endpoints

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// TestMadeAMomentAgo: Endpoints that are there and that the cache has not yet are looked at again, and nobody is warned of it.
func TestMadeAMomentAgo(t *testing.T) {
	posts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts++
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409,"message":"endpoints \"web\" already exists"}`))
	}))
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c, err := New(Config{Kube: kube, Informers: informers.NewSharedInformerFactory(kube, 0), Events: record.NewFakeRecorder(10), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.queue.ShutDown()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.7"}}
	err = c.fillEndpoints(t.Context(), service, nil)
	if !errors.Is(err, errStale) || posts != 1 {
		t.Errorf("after %d tries: %v, want %v", posts, err, errStale)
	}
	c.failed(cache.NewObjectName("default", "web"), err)
	if log.Len() > 0 {
		t.Errorf("the log says %s", &log)
	}
}
