// Package apitest runs an API server of ours, on a free port and in directories of its own, for tests of what uses one.
package apitest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/controllers"
)

// Timeout ends what does not happen. It is no measure.
const Timeout = time.Minute

// API is an API server that runs until the test ends.
type API struct {
	testing.TB
	// Config has all rights.
	Config     *rest.Config
	Kubeconfig string
	Client     kubernetes.Interface
	Metadata   metadata.Interface
	server     *apiserver.Server
	// controllers has the rights of the controllers.
	controllers *rest.Config
}

// Start starts an API server.
func Start(t testing.TB) *API {
	t.Helper()
	return start(t, shortDir(t), etcd.RemoteConfig{})
}

// shortDir is a directory with a name that leaves room for that of a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t testing.TB, dir string, remote etcd.RemoteConfig) *API {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &API{TB: t, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	server, err := apiserver.New(ctx, apiserver.Config{
		DataDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), Kubeconfig: a.Kubeconfig, Etcd: remote,
		BindAddress: "127.0.0.1", NodeName: "n", EtcdTick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API server ended with %v", err)
		}
	})
	a.server = server
	select {
	case <-server.Ready():
	case <-time.After(Timeout):
		t.Fatal("the API server does not become ready")
	}
	a.Config = rest.CopyConfig(server.AdminConfig())
	a.Config.QPS = -1
	if a.Client, err = kubernetes.NewForConfig(a.Config); err != nil {
		t.Fatal(err)
	}
	a.controllers = server.ControllersConfig()
	a.controllers.Wrap(func(rt http.RoundTripper) http.RoundTripper { return landing{rt} })
	// All clients of one configuration share a connection, which stays: it is made now, so that no test takes it for something that is left.
	if c, err := kubernetes.NewForConfig(a.controllers); err != nil {
		t.Fatal(err)
	} else if _, err := c.Discovery().ServerVersion(); err != nil {
		t.Fatal(err)
	}
	if a.Metadata, err = metadata.NewForConfig(a.Config); err != nil {
		t.Fatal(err)
	}
	return a
}

// ControllersConfig has the rights of the controllers.
func (a *API) ControllersConfig() *rest.Config { return a.controllers }

// Control runs controllers until the test ends or stop is called, which returns when nothing of them is at work.
func (a *API) Control(choice ...string) (stop func()) {
	a.Helper()
	return a.control(nil, choice)
}

// ControlInTurn does the same for controllers that act when they are elected.
func (a *API) ControlInTurn(election controllers.Election, choice ...string) (stop func()) {
	a.Helper()
	return a.control(&election, choice)
}

func (a *API) control(election *controllers.Election, choice []string) (stop func()) {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(a.Output(), nil))
	go func() {
		ended <- controllers.New(controllers.Config{Kube: a.controllers, Authority: a.server, Tokens: a.server, Choice: choice, Election: election, Log: log}).Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			a.Errorf("the controllers ended with %v", err)
		}
	})
	a.Cleanup(stop)
	return stop
}

// Await waits until an object is as wanted; nil: it is not there. namespace is empty for one that is in none.
func (a *API) Await(gvr schema.GroupVersionResource, namespace, name, what string, wanted func(*metav1.PartialObjectMetadata) bool) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), Timeout)
	defer cancel()
	objects := a.Metadata.Resource(gvr).Namespace(namespace)
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	list, err := objects.List(ctx, options)
	if err != nil {
		a.Fatal(err)
	}
	var last *metav1.PartialObjectMetadata
	if len(list.Items) > 0 {
		last = &list.Items[0]
	}
	if wanted(last) {
		return
	}
	options.ResourceVersion = list.ResourceVersion
	w, err := objects.Watch(ctx, options)
	if err != nil {
		a.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			a.Fatalf("the watch of %s ended with %v", gvr.Resource, e.Object)
		}
		if last = object; e.Type == watch.Deleted {
			last = nil
		}
		if wanted(last) {
			return
		}
	}
	a.Fatalf("%s %s/%s does not become %s; it is %+v", gvr.Resource, namespace, name, what, last)
}

// AwaitGone waits until an object is not there.
func (a *API) AwaitGone(gvr schema.GroupVersionResource, namespace, name string) {
	a.Helper()
	a.Await(gvr, namespace, name, "gone", func(o *metav1.PartialObjectMetadata) bool { return o == nil })
}

// AwaitChange waits until something is so, which it asks now and whenever an object of a resource in a namespace has changed. otherwise says how it is
// where that does not come to be.
func (a *API) AwaitChange(so func(context.Context) bool, otherwise func() string, gvr schema.GroupVersionResource, namespace string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), Timeout)
	defer cancel()
	objects := a.Metadata.Resource(gvr).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		a.Fatal(err)
	}
	w, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		a.Fatal(err)
	}
	defer w.Stop()
	for !so(ctx) {
		if e, ok := <-w.ResultChan(); !ok || e.Type == watch.Error {
			a.Fatalf("%s (the watch of %s ended with %v)", otherwise(), gvr.Resource, e.Object)
		}
	}
}

// AwaitAccount waits until pods are let into a namespace.
func (a *API) AwaitAccount(namespace string) {
	a.Helper()
	a.Await(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, namespace, "default", "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
}
