// Package store keeps API objects in etcd: it gives each resource the storage.Interface that the generic registry of
// k8s.io/apiserver works with.
//
// It does what that library's own factory does, but with one client for all resources, which the caller brings: the
// factory opens a connection for each.
//
// Objects are protobuf under /registry, by the paths that a Kubernetes API server uses, so that its tools can read them.
package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// prefix is where a Kubernetes API server keeps its objects.
	prefix = "/registry"
	// compactionInterval is how often revisions are dropped that are older than one interval: a watch, or a paged list,
	// may go on from a revision that is up to that old. When the store is nearly full, package etcd drops them earlier.
	compactionInterval = 5 * time.Minute
)

// Config is what a Store needs.
type Config struct {
	Client *clientv3.Client
	// Remote: the client's etcd is in another process. It may have several members, and others may write to it.
	Remote bool
	Codecs serializer.CodecFactory
	// Uncached names the resources that are read from etcd each time: many objects, few readers.
	Uncached []schema.GroupResource
	// Transformer encrypts what is stored of a resource; nil: nothing is encrypted.
	Transformer func(resource schema.GroupResource) value.Transformer
	// Versions are those in which resources are stored; one that is not named is stored in its group's v1.
	Versions map[schema.GroupResource]schema.GroupVersion
}

// Store implements generic.RESTOptionsGetter.
type Store struct {
	client   *kubernetes.Client
	codecs   serializer.CodecFactory
	uncached map[schema.GroupResource]bool
	versions map[schema.GroupResource]schema.GroupVersion
	// transformer encrypts and decrypts.
	transformer func(schema.GroupResource) value.Transformer
	// compactor tells the caches from which revision on etcd still has the history.
	compactor etcd3.Compactor
	stop      func()

	mu      sync.Mutex
	cachers []*cacher.Cacher
}

var _ generic.RESTOptionsGetter = (*Store)(nil)

// New makes a Store and begins to compact etcd. Close ends that; it does not close the client.
func New(cfg Config) *Store {
	client := &kubernetes.Client{Client: cfg.Client}
	// The library asks each endpoint of the client whether it can report the progress of a watch, which lists from the
	// watch cache need. An in-process client has no endpoint to ask.
	if cfg.Remote {
		client.Kubernetes = explained{client}
		feature.DefaultFeatureSupportChecker.CheckClient(cfg.Client.Ctx(), cfg.Client, storage.RequestWatchProgress)
	} else {
		client.Kubernetes = explained{oneMember{client, cfg.Client.KV}}
		feature.DefaultFeatureSupportChecker.CheckClient(cfg.Client.Ctx(), embedded{}, storage.RequestWatchProgress)
	}

	compactor := etcd3.NewCompactor(cfg.Client, compactionInterval, clock.RealClock{}, nil)
	s := &Store{client: client, codecs: cfg.Codecs, uncached: map[schema.GroupResource]bool{}, versions: cfg.Versions, transformer: cfg.Transformer, compactor: compactor, stop: compactor.Stop}
	if s.transformer == nil {
		s.transformer = func(schema.GroupResource) value.Transformer { return identity.NewEncryptCheckTransformer() }
	}
	for _, gr := range cfg.Uncached {
		s.uncached[gr] = true
	}
	return s
}

// explained makes errors of the store that people can do something about errors of the API.
type explained struct{ kubernetes.Interface }

// OptimisticPut implements kubernetes.Interface.
func (e explained) OptimisticPut(ctx context.Context, key string, value []byte, expectedRevision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	resp, err := e.Interface.OptimisticPut(ctx, key, value, expectedRevision, opts)
	if errdefs.IsResourceExhausted(err) {
		err = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonFull, Message: err.Error(),
		}}
	}
	return resp, err
}

// reasonFull is the reason in the status of a request that is refused for lack of room.
const reasonFull metav1.StatusReason = "InsufficientStorage"

// embedded answers for the etcd of this process: it is of the version that it was linked with.
type embedded struct{}

func (embedded) Endpoints() []string { return []string{"embedded"} }

func (embedded) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}

// Wait returns when all resources that were opened so far can be read from their caches.
func (s *Store) Wait(ctx context.Context) error {
	s.mu.Lock()
	cachers := append([]*cacher.Cacher(nil), s.cachers...)
	s.mu.Unlock()
	for _, c := range cachers {
		if err := c.Wait(ctx); err != nil {
			return fmt.Errorf("fill the watch cache: %w", err)
		}
	}
	return nil
}

// Close ends the compaction. The resources' own storages are closed by who opened them.
func (s *Store) Close() { s.stop() }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s *Store) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	codec, versioner, err := s.codec(resource)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	config := storagebackend.NewDefaultConfig(prefix, codec)
	config.EncodeVersioner = versioner
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		Decorator:               s.open,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          resourcePrefix(resource),
		// A deletion that is to wait for dependents, or to orphan them, leaves the object with a finalizer for the garbage collector (role controllers).
		EnableGarbageCollection: true,
	}, nil
}

// codec writes the version that is stored and reads it into the in-memory form.
func (s *Store) codec(resource schema.GroupResource) (runtime.Codec, runtime.GroupVersioner, error) {
	protobuf, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, nil, errors.New("the scheme's codecs have no protobuf")
	}
	stored, known := s.versions[resource]
	if !known {
		stored = schema.GroupVersion{Group: resource.Group, Version: "v1"}
	}
	memory := schema.GroupVersion{Group: stored.Group, Version: runtime.APIVersionInternal}
	return s.codecs.CodecForVersions(protobuf.Serializer, s.codecs.UniversalDeserializer(), stored, memory), stored, nil
}

// resourcePrefix is a resource's folder, as Kubernetes has it.
func resourcePrefix(resource schema.GroupResource) string {
	if resource == (schema.GroupResource{Resource: "nodes"}) {
		return "/minions"
	}
	return "/" + resource.Resource
}

// open is a generic.StorageDecorator.
func (s *Store) open(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, getAttrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	versioner := storage.APIObjectVersioner{}
	// The wrappers make a record that cannot be decoded an error that names it, and let an administrator delete it.
	transformer := etcd3.WithCorruptObjErrorHandlingTransformer(s.transformer(config.GroupResource))
	decoder := etcd3.WithCorruptObjErrorHandlingDecoder(etcd3.NewDefaultDecoder(config.Codec, versioner))
	raw, err := etcd3.New(s.client, s.compactor, config.Codec, newFunc, newListFunc, config.Prefix, resourcePrefix, config.GroupResource,
		transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s in etcd: %w", config.GroupResource, err)
	}
	deletable := etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, config.GroupResource)
	if s.uncached[config.GroupResource] {
		return apart{deletable}, raw.Close, nil
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             ageing{deletable, &ager{window: config.EventsHistoryWindow}},
		Versioner:           versioner,
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        getAttrs,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
		Clock:               cacheClock{},
	})
	if err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("cache %s: %w", config.GroupResource, err)
	}
	s.mu.Lock()
	s.cachers = append(s.cachers, c)
	s.mu.Unlock()
	delegator := cacher.NewCacheDelegator(c, deletable)
	return remembering{delegator, apart{deletable}}, sync.OnceFunc(func() {
		delegator.Stop()
		c.Stop()
		raw.Close()
	}), nil
}
