package view

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Follow keeps the view as the API server's services and EndpointSlices are, until ctx ends; then it returns. synced is called when all of
// them are in the view for the first time.
func (v *View) Follow(ctx context.Context, client kubernetes.Interface, synced func()) {
	services, endpoints := client.CoreV1().Services(metav1.NamespaceAll), client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	first := &sync.WaitGroup{}
	first.Add(2)
	feeds := []struct {
		lw   *cache.ListWatch
		kind runtime.Object
		into *feed
	}{{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return services.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return services.Watch(ctx, o)
		},
	}, &corev1.Service{}, &feed{set: v.serviceEvent, replace: v.serviceList, first: first.Done}}, {&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return endpoints.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return endpoints.Watch(ctx, o)
		},
	}, &discoveryv1.EndpointSlice{}, &feed{set: v.sliceEvent, replace: v.sliceList, first: first.Done}}}
	var running sync.WaitGroup
	for _, f := range feeds {
		reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(f.lw, client), f.kind, f.into, cache.ReflectorOptions{Name: "dns"})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	all := make(chan struct{})
	go func() {
		first.Wait()
		close(all)
	}()
	select {
	case <-all:
		synced()
	case <-ctx.Done():
	}
	running.Wait()
	for _, f := range feeds {
		f.into.once.Do(f.into.first) // so that nobody waits for what does not come
	}
	<-all
}

// feed is what a reflector writes to.
type feed struct {
	set     func(obj any, gone bool) error
	replace func(objs []any) error
	first   func()
	once    sync.Once
}

var (
	_ cache.ReflectorStore    = (*feed)(nil)
	_ cache.TransformingStore = (*feed)(nil)
)

// Transformer implements cache.TransformingStore: of what is not in the view yet, no more is kept than is needed.
func (*feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if m, err := meta.Accessor(obj); err == nil {
			m.SetManagedFields(nil)
			m.SetAnnotations(nil)
		}
		return obj, nil
	}
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error { return f.set(obj, false) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error { return f.set(obj, false) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(obj any) error { return f.set(obj, true) }

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(objs []any, _ string) error {
	if err := f.replace(objs); err != nil {
		return err
	}
	f.once.Do(f.first)
	return nil
}

// Resync implements cache.ReflectorStore.
func (*feed) Resync() error { return nil }

func (v *View) serviceEvent(obj any, gone bool) error {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return unexpected(obj)
	}
	k := key{s.Namespace, s.Name}
	if gone {
		v.setService(k, nil)
		return nil
	}
	v.setService(k, objectOf(s))
	return nil
}

func (v *View) serviceList(objs []any) error {
	all := make(map[key]*object, len(objs))
	for _, obj := range objs {
		s, ok := obj.(*corev1.Service)
		if !ok {
			return unexpected(obj)
		}
		all[key{s.Namespace, s.Name}] = objectOf(s)
	}
	v.replaceServices(all)
	return nil
}

func (v *View) sliceEvent(obj any, gone bool) error {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return unexpected(obj)
	}
	k := key{s.Namespace, s.Name}
	if gone {
		v.setSlice(k, nil)
		return nil
	}
	v.setSlice(k, sliceOf(s))
	return nil
}

func (v *View) sliceList(objs []any) error {
	all := make(map[key]*slice, len(objs))
	for _, obj := range objs {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			return unexpected(obj)
		}
		if part := sliceOf(s); part != nil {
			all[key{s.Namespace, s.Name}] = part
		}
	}
	v.replaceSlices(all)
	return nil
}

func unexpected(obj any) error { return fmt.Errorf("dns: a watch told of a %T", obj) }
