package controllers

import (
	"cmp"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/accounttokens"
	"monopod.dev/monopod/internal/controllers/autoscaler"
	"monopod.dev/monopod/internal/controllers/certificates"
	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/scales"
	"monopod.dev/monopod/internal/controllers/servicelb"
	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/pods"
)

// shared is what the controllers have in common: connections, what is known of the API's objects, and the way of events.
type shared struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	discovery *discovery.DiscoveryClient
	informers informers.SharedInformerFactory
	scales    *scales.Scales
	metrics   *autoscaler.Client
	pace      *owned.Pace
	authority certificates.Authority
	tokens    accounttokens.Issuer
	events    record.EventBroadcaster
	listens   servicelb.Listens
	balancers []iprange.Range
	ownPorts  func(node string) []pods.OwnPort
	// domain is that of the cluster's names.
	domain string
	// ca is the authority of the API server's own certificate, as PEM.
	ca []byte
}

func (c *Controllers) share(fence *fence) (*shared, error) {
	config := rest.CopyConfig(c.config.Kube)
	if fence != nil {
		config.Wrap(fence.wrap)
	}
	// What they do is on the way of pods to their start, and of people who wait for a deletion: how many requests they have at a time is bounded, and how many
	// pods they make (s.pace), but not how many requests a second.
	config.QPS = -1
	config.Wrap(newGate) // before the fence, which is to be open when its turn has come
	config = rest.AddUserAgent(config, userAgent)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	s := &shared{
		pace: owned.NewPace(), authority: c.config.Authority, tokens: c.config.Tokens, listens: c.config.Listens, balancers: c.config.Balancers,
		ownPorts: c.config.OwnPorts, domain: cmp.Or(c.config.Domain, "cluster.local"),
	}
	if s.ca, err = authorityOf(config); err != nil {
		return nil, err
	}
	if s.client, err = kubernetes.NewForConfigAndClient(typed, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(config, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, connection); err != nil {
		return nil, fmt.Errorf("controllers: client of %s: %w", config.Host, err)
	}
	if s.scales, err = scales.New(config, connection, s.discovery); err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	if s.metrics, err = autoscaler.NewClient(config, connection, s.discovery, s.scales.Mapper()); err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	s.informers = informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(withoutManagedFields))
	return s, nil
}

// authorityOf reads the authority by which a client knows the API server.
func authorityOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	ca, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("controllers: authority of %s: %w", config.Host, err)
	}
	return ca, nil
}

// withoutManagedFields drops what no controller reads, and what may be most of an object.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil && len(m.GetManagedFields()) > 0 {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (s *shared) recorder(component string) record.EventRecorder {
	return s.events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: component})
}
