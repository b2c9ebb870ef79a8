package garbage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// definitions are the groups whose objects make kinds.
var definitions = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

// settling are the times after which a definition that has changed may be served.
var settling = []time.Duration{time.Second, 10 * time.Second}

// feed brings the objects of a kind into the graph. It is what a reflector writes to: beside the graph nothing is kept.
type feed struct {
	*Collector
	kind *kind
	// known is closed when all objects are in the graph for the first time; lists is how often they were listed.
	known chan struct{}
	once  sync.Once
	lists int
	// stop returns when nothing comes from it any more.
	stop func()
}

var (
	_ cache.ReflectorStore    = &feed{}
	_ cache.TransformingStore = &feed{}
)

// watch watches the objects of a kind.
func (c *Collector) watch(ctx context.Context, k *kind) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{Collector: c, kind: k, known: make(chan struct{})}
	client := c.config.Metadata.Resource(k.gvr)
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}, c.config.Metadata), &metav1.PartialObjectMetadata{}, f, cache.ReflectorOptions{Name: "garbage collector", TypeDescription: k.gvr.String()})
	ended := make(chan struct{})
	c.watches.Go(func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	})
	f.stop = func() {
		cancel()
		<-ended
	}
	return f
}

// Transformer implements cache.TransformingStore: of what is not in the graph yet, too, no more is kept than is needed.
func (*feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return obj, nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			UID: m.UID, Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion,
			DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences,
		}}, nil
	}
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error {
	m, err := metadataOf(obj)
	if err == nil {
		f.look(f.graph.observe(f.kind, m))
		f.define()
	}
	return err
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(obj any) error {
	m, err := metadataOf(obj)
	if err == nil {
		f.look(f.graph.remove(m.UID))
		f.define()
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(objs []any, _ string) error {
	all := make([]*metav1.PartialObjectMetadata, 0, len(objs))
	for _, obj := range objs {
		m, err := metadataOf(obj)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	f.look(f.graph.replace(f.kind, all))
	f.once.Do(func() { close(f.known) })
	if f.lists++; f.lists > 1 { // the watch was cut: the server may be another one
		f.discovery.AddAfter(settling[0], settling[0])
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (*feed) Resync() error { return nil }

// define has the kinds looked at if the object makes some.
func (f *feed) define() {
	if slices.Contains(definitions, f.kind.gvk.Group) {
		for _, d := range settling {
			f.discovery.AddAfter(d, d)
		}
	}
}

func metadataOf(obj any) (*metav1.PartialObjectMetadata, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("the watch of the garbage collector has sent a %T; metadata was asked for", obj)
	}
	return m, nil
}
