// Package objects holds the objects that the node's pods refer to, ConfigMaps and Secrets, each followed by a watch of its own: that is all that a node may
// watch of them in a cluster that restricts its nodes. Trust bundles are followed by their names or by their signers, requests for certificates by their pods. Claims and their volumes, which it may only get, are read when they are asked for. Another kind is a row of the table in kinds.go, and
// of pods.References if pods name it.
//
// It guarantees that the holder of an object is told of each change of it, and that nothing is held after the last
// holder has let go. An object that is not held, or whose watch has not brought it yet, is read from the API server.
package objects

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Name names an object, or all that a selector finds; what is in no namespace has none.
type Name struct {
	Kind            Kind
	Namespace, Name string
	// Selector is one of fields, for all objects that it finds. Name is empty then.
	Selector string
}

// Reader reads objects.
type Reader interface {
	// Get is an object as it was last seen; apierrors.IsNotFound where there is none. It is shared: it must not be changed.
	Get(ctx context.Context, n Name) (runtime.Object, error)
}

// Lister lists objects.
type Lister interface {
	// List are the objects that the name's selector finds, as they were last seen, in no order. They are shared: they must not be changed.
	List(ctx context.Context, n Name) ([]runtime.Object, error)
}

// Get is an object of the Go type that its kind has.
func Get[T runtime.Object](ctx context.Context, from Reader, n Name) (T, error) {
	var none T
	found, err := from.Get(ctx, n)
	if err != nil {
		return none, err
	}
	as, ok := found.(T)
	if !ok {
		return none, fmt.Errorf("%s %s is a %T, not a %T", n.Kind, n.Name, found, none)
	}
	return as, nil
}

// List are the objects that a selector finds, of the Go type that their kind has.
func List[T runtime.Object](ctx context.Context, from Lister, n Name) ([]T, error) {
	found, err := from.List(ctx, n)
	if err != nil {
		return nil, err
	}
	all := make([]T, 0, len(found))
	for _, obj := range found {
		as, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("%s with %s are of the type %T", n.Kind, n.Selector, obj)
		}
		all = append(all, as)
	}
	return all, nil
}

// Store is the set of held objects. It is safe for concurrent use.
type Store struct {
	client kubernetes.Interface
	ctx    context.Context
	wg     sync.WaitGroup

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
func New(ctx context.Context, client kubernetes.Interface) *Store {
	return &Store{client: client, ctx: ctx, entries: map[Name]*entry{}, held: map[string]map[Name]bool{}}
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

// Release makes holder hold nothing.
func (s *Store) Release(holder string) { s.Hold(holder, nil, nil) }

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
		ListerWatcher: kinds[n.Kind].follow(s.client, n),
		ObjectType:    kinds[n.Kind].empty,
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

// watched is the cache of what is held by a name; nil: it is not held, or its watch has brought nothing yet.
func (s *Store) watched(n Name) cache.Store {
	s.mu.Lock()
	e := s.entries[n]
	s.mu.Unlock()
	if e == nil || !e.synced() {
		return nil
	}
	return e.store
}

// cached returns the object as its watch brought it, or nil.
func (s *Store) cached(n Name) runtime.Object {
	store := s.watched(n)
	if store == nil {
		return nil
	}
	key := cache.NewObjectName(n.Namespace, n.Name).String()
	if found, there, err := store.GetByKey(key); err == nil && there {
		obj, _ := found.(runtime.Object)
		return obj
	}
	return nil
}

// List implements Lister.
func (s *Store) List(ctx context.Context, n Name) ([]runtime.Object, error) {
	if store := s.watched(n); store != nil {
		var all []runtime.Object
		for _, found := range store.List() {
			if obj, ok := found.(runtime.Object); ok {
				all = append(all, obj)
			}
		}
		return all, nil
	}
	kind := kinds[n.Kind]
	if kind.list == nil {
		return nil, fmt.Errorf("objects of the kind %s are not listed", n.Kind)
	}
	all, err := kind.list(ctx, s.client, n)
	if err != nil {
		return nil, fmt.Errorf("list %s with %s: %w", n.Kind, n.Selector, err)
	}
	return all, nil
}

// Get implements Reader.
func (s *Store) Get(ctx context.Context, n Name) (runtime.Object, error) {
	if obj := s.cached(n); obj != nil {
		return obj, nil
	}
	kind, known := kinds[n.Kind]
	if !known {
		return nil, fmt.Errorf("objects of the kind %s are not read", n.Kind)
	}
	obj, err := kind.get(ctx, s.client, n)
	if err != nil {
		return nil, n.said(kind.name, err)
	}
	return obj, nil
}

// said says of which object an error is. That one is not there is told as a kubelet tells it, which names the object once.
func (n Name) said(kind string, err error) error {
	if apierrors.IsNotFound(err) {
		return &absent{fmt.Sprintf("%s %q not found", strings.ToLower(kind), n.Name), err}
	}
	return fmt.Errorf("%s %s: %w", kind, cache.NewObjectName(n.Namespace, n.Name), err)
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
