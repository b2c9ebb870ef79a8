// Package objects holds the ConfigMaps and Secrets that the node's pods refer to, each followed by a watch of its own:
// that is all that a node may read in a cluster that restricts its nodes.
//
// It guarantees that the holder of an object is told of each change of it, and that nothing is held after the last
// holder has let go. An object that is not held, or whose watch has not brought it yet, is read from the API server.
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/pods"
)

// Kind is the kind of a held object.
type Kind string

// The kinds.
const (
	ConfigMap = Kind(pods.ConfigMap)
	Secret    = Kind(pods.Secret)
)

// Name names an object.
type Name struct {
	Kind            Kind
	Namespace, Name string
}

// Store is the set of held objects. It is safe for concurrent use.
type Store struct {
	client kubernetes.Interface
	ctx    context.Context
	log    *slog.Logger
	wg     sync.WaitGroup
	tokens tokens

	mu      sync.Mutex // guards what follows
	entries map[Name]*entry
	held    map[string]map[Name]bool // by holder
}

// entry is one watched object.
type entry struct {
	cancel  context.CancelFunc
	store   cache.Store
	synced  func() bool
	holders map[string]func()
}

// New makes an empty store; its watches end with ctx.
func New(ctx context.Context, client kubernetes.Interface, log *slog.Logger) *Store {
	return &Store{
		client: client, ctx: ctx, log: log, entries: map[Name]*entry{}, held: map[string]map[Name]bool{},
		tokens: tokens{held: map[tokenKey]token{}},
	}
}

// Hold makes holder hold exactly these objects. changed is called after each change of one of them; it must not block.
func (s *Store) Hold(holder string, names []Name, changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[Name]bool{}
	for _, n := range names {
		want[n] = true
		if !s.held[holder][n] {
			s.hold(holder, n, changed)
		}
	}
	for n := range s.held[holder] {
		if !want[n] {
			s.release(holder, n)
		}
	}
	if len(want) == 0 {
		delete(s.held, holder)
	} else {
		s.held[holder] = want
	}
}

// Release makes holder, which is a pod's UID, hold nothing.
func (s *Store) Release(holder string) {
	s.Hold(holder, nil, nil)
	s.forgetTokens(types.UID(holder))
}

// Wait returns when all watches have ended, after the store's context has.
func (s *Store) Wait() { s.wg.Wait() }

func (s *Store) hold(holder string, n Name, changed func()) {
	if e := s.entries[n]; e != nil {
		e.holders[holder] = changed
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	e := &entry{cancel: cancel, holders: map[string]func(){holder: changed}}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: s.listWatch(n),
		ObjectType:    n.object(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.tell(e) },
			UpdateFunc: func(_, _ any) { s.tell(e) },
			DeleteFunc: func(any) { s.tell(e) },
		},
	})
	e.store, e.synced = store, controller.HasSynced
	s.entries[n] = e
	s.wg.Go(func() { controller.RunWithContext(ctx) })
}

func (s *Store) tell(e *entry) {
	s.mu.Lock()
	var tell []func()
	for _, f := range e.holders {
		tell = append(tell, f)
	}
	s.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

func (s *Store) release(holder string, n Name) {
	e := s.entries[n]
	if e == nil {
		return
	}
	delete(e.holders, holder)
	if len(e.holders) == 0 {
		e.cancel()
		delete(s.entries, n)
	}
}

func (n Name) object() runtime.Object {
	if n.Kind == Secret {
		return &v1.Secret{}
	}
	return &v1.ConfigMap{}
}

func (s *Store) listWatch(n Name) cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, n.Name).String()
	core := s.client.CoreV1()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			if n.Kind == Secret {
				return core.Secrets(n.Namespace).List(ctx, o)
			}
			return core.ConfigMaps(n.Namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			if n.Kind == Secret {
				return core.Secrets(n.Namespace).Watch(ctx, o)
			}
			return core.ConfigMaps(n.Namespace).Watch(ctx, o)
		},
	}, s.client)
}

// cached returns the object as its watch brought it, or nil.
func (s *Store) cached(n Name) any {
	s.mu.Lock()
	e := s.entries[n]
	s.mu.Unlock()
	if e == nil || !e.synced() {
		return nil
	}
	obj, _, err := e.store.GetByKey(n.Namespace + "/" + n.Name)
	if err != nil {
		return nil
	}
	return obj
}

// ConfigMap returns the ConfigMap. The result is shared: it must not be changed.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if cm, ok := s.cached(Name{ConfigMap, namespace, name}).(*v1.ConfigMap); ok {
		return cm, nil
	}
	cm, err := s.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, named("ConfigMap", namespace, name, err)
	}
	return cm, nil
}

// Secret returns the Secret. The result is shared: it must not be changed.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if sec, ok := s.cached(Name{Secret, namespace, name}).(*v1.Secret); ok {
		return sec, nil
	}
	sec, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, named("Secret", namespace, name, err)
	}
	return sec, nil
}

// named says of which object an error is. That one is not there is told as a kubelet tells it, which names the object once.
func named(kind, namespace, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return &absent{fmt.Sprintf("%s %q not found", strings.ToLower(kind), name), err}
	}
	return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
}

// absent is the API server's answer for an object that is not there, in other words.
type absent struct {
	text   string
	answer error
}

// Error is the text.
func (a *absent) Error() string { return a.text }

// Unwrap gives the answer.
func (a *absent) Unwrap() error { return a.answer }
