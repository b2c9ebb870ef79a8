// Package scales reads and writes how many replicas objects want, of whatever kind: deployments, stateful sets, custom resources. All that it knows of a kind is
// what discovery tells, and the subresource scale.
//
// What discovery has told is kept, and asked for again when a kind is missing in it, but not more often than every half minute: who names a kind that never
// was would have the API server tell all its resources each time.
package scales

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
)

// patience is for how long what discovery has told is not asked for again.
const patience = 30 * time.Second

// ErrNotScalable is that objects of a kind have no scale, or that the API server has no such kind. It stays so until somebody changes the API server's kinds.
var ErrNotScalable = errors.New("not scalable")

// Scales are the scales of all objects. Its methods are safe for concurrent use.
type Scales struct {
	cached discovery.CachedDiscoveryInterface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	client scale.ScalesGetter
	now    func() time.Time

	mu sync.Mutex // guards what follows
	// asked is when discovery was last asked anew.
	asked time.Time
}

// New returns the scales of the objects of an API server. It asks it for nothing yet.
func New(config *rest.Config, connection *http.Client, from discovery.DiscoveryInterface) (*Scales, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &schema.GroupVersion{} // each request names its own
	config.NegotiatedSerializer = scale.NewScaleConverter().Codecs().WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, connection)
	if err != nil {
		return nil, fmt.Errorf("client of scales: %w", err)
	}
	cached := memory.NewMemCacheClient(from)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	return &Scales{
		cached: cached, mapper: mapper, now: time.Now,
		client: scale.New(client, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached)),
	}, nil
}

// Mapper tells which resources kinds are.
func (s *Scales) Mapper() meta.RESTMapper { return s.mapper }

// Get is the scale of an object, and the resource that it was read from, for Update. Where objects of its kind cannot have one the error is ErrNotScalable;
// that there is no such object is one that says NotFound, in the API server's words.
func (s *Scales) Get(ctx context.Context, of schema.GroupKind, namespace, name string) (*autoscalingv1.Scale, schema.GroupResource, error) {
	resources, err := s.resources(ctx, of)
	if errors.Is(err, ErrNotScalable) && s.mayAskAgain() {
		s.mapper.ResetWithContext(ctx)
		resources, err = s.resources(ctx, of)
	}
	if err != nil {
		return nil, schema.GroupResource{}, err
	}
	var first error
	for _, r := range resources {
		read, err := s.client.Scales(namespace).Get(ctx, r, name, metav1.GetOptions{})
		if err == nil {
			return read, r, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, schema.GroupResource{}, first
}

// Update writes a scale that Get has read. A conflict is an error.
func (s *Scales) Update(ctx context.Context, of schema.GroupResource, to *autoscalingv1.Scale) error {
	_, err := s.client.Scales(to.Namespace).Update(ctx, of, to, metav1.UpdateOptions{})
	return err
}

// resources are those that objects of a kind are served by and that have the subresource scale, the preferred one first.
func (s *Scales) resources(ctx context.Context, of schema.GroupKind) ([]schema.GroupResource, error) {
	mappings, err := s.mapper.RESTMappingsWithContext(ctx, of)
	if meta.IsNoMatchError(err) {
		return nil, unscalable{err}
	}
	if err != nil {
		return nil, fmt.Errorf("which resource a %s is: %w", of, err)
	}
	var all []schema.GroupResource
	for _, m := range mappings {
		has, err := s.scalable(m.Resource)
		if err != nil {
			return nil, fmt.Errorf("whether %s have scales: %w", m.Resource.Resource, err)
		}
		if r := m.Resource.GroupResource(); has && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, unscalable{fmt.Errorf("%s does not implement the scale subresource", mappings[0].Resource.GroupResource())}
	}
	return all, nil
}

// scalable says whether a resource has the subresource scale.
func (s *Scales) scalable(r schema.GroupVersionResource) (bool, error) {
	list, err := s.cached.ServerResourcesForGroupVersion(r.GroupVersion().String())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(of metav1.APIResource) bool { return of.Name == r.Resource+"/scale" }), nil
}

// mayAskAgain says whether discovery may be asked anew, which the caller then does.
func (s *Scales) mayAskAgain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.asked.IsZero() && now.Sub(s.asked) < patience {
		return false
	}
	s.asked = now
	return true
}

// unscalable is why objects of a kind have no scale.
type unscalable struct{ error }

func (u unscalable) Unwrap() []error { return []error{u.error, ErrNotScalable} }
