// Package services knows the cluster's services as far as containers are told of them by variables.
//
// It watches from the first pod on that is to be told of any, once for all pods, and keeps of each service its name, its address and its ports. It guarantees
// that a container is told of all services that there were when the watch began, and of those that the watch has brought since: like a kubelet it does
// not wait for one that was made just now.
package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/agent/env"
	"monopod.dev/monopod/internal/agent/podspec"
)

// defaultPatience is how long a container's start waits for the services before it is tried again later.
const defaultPatience = 10 * time.Second

// Config says where services are found.
type Config struct {
	// Kube reaches the API server; it may list and watch services.
	Kube kubernetes.Interface
	// API is where pods reach the API, whatever the Service kubernetes says; the zero value: they do not. Nil: at that Service.
	API *netip.AddrPort
	// Patience is how long Variables waits for the services; 0: 10 s.
	Patience time.Duration
}

// Services is what is known of the services. It is safe for concurrent use.
type Services struct {
	cfg Config
	// ctx ends the watch.
	ctx context.Context // the watch is begun by the first who asks, and outlives him
	wg  sync.WaitGroup

	begin  sync.Once
	store  cache.Store
	synced <-chan struct{}
}

// New asks for nothing yet; what it begins later ends with ctx.
func New(ctx context.Context, cfg Config) *Services {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	return &Services{cfg: cfg, ctx: ctx}
}

// Wait returns when the watch has ended, after ctx has.
func (s *Services) Wait() {
	s.begin.Do(func() {}) // none is begun any more
	s.wg.Wait()
}

// errUnread is in a kubelet's words.
var errUnread = errors.New("services have not yet been read at least once, cannot construct envvars")

// Variables are those that tell a pod's containers of services. It waits until the services have been read once, but not for ever.
func (s *Services) Variables(ctx context.Context, pod *v1.Pod) ([]podspec.EnvVar, error) {
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	in := env.LinksInput{Namespace: pod.Namespace, Links: links, API: s.cfg.API}
	if !links && s.cfg.API != nil {
		return env.Links(in), nil
	}
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	for _, obj := range s.store.List() {
		in.Services = append(in.Services, obj.(*v1.Service))
	}
	return env.Links(in), nil
}

// await returns when the services have been read once.
func (s *Services) await(ctx context.Context) error {
	s.begin.Do(s.watch)
	if s.synced == nil {
		return context.Cause(s.ctx)
	}
	late := time.NewTimer(s.cfg.Patience)
	defer late.Stop()
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-late.C:
	}
	// The watch goes on trying, and keeps to itself why it fails.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	if _, err := s.cfg.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return errUnread
}

func (s *Services) watch() {
	all := s.cfg.Kube.CoreV1().Services(metav1.NamespaceAll)
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return all.Watch(ctx, o)
			},
		}, s.cfg.Kube),
		ObjectType: &v1.Service{}, Transform: slim, Handler: cache.ResourceEventHandlerFuncs{},
	})
	s.store, s.synced = store, controller.HasSyncedChecker().Done()
	s.wg.Go(func() { controller.RunWithContext(s.ctx) })
}

// slim keeps of a service what env.Links reads, and what the watch itself does.
func slim(obj any) (any, error) {
	service, ok := obj.(*v1.Service)
	if !ok {
		return obj, nil
	}
	kept := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name, UID: service.UID, ResourceVersion: service.ResourceVersion},
		Spec:       v1.ServiceSpec{ClusterIP: service.Spec.ClusterIP},
	}
	for _, p := range service.Spec.Ports {
		kept.Spec.Ports = append(kept.Spec.Ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return kept, nil
}
