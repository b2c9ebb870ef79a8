package controllers_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"

	"monopod.dev/monopod/internal/controllers/namespace"
	"monopod.dev/monopod/test/apitest"
)

// poorDiscovery is the discovery of a server whose resources have no deletecollection, and which does not know one of its groups until it is healed.
type poorDiscovery struct {
	real   namespace.Discovery
	healed atomic.Bool
}

func (p *poorDiscovery) ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error) {
	lists, err := p.real.ServerPreferredNamespacedResourcesWithContext(ctx)
	for _, l := range lists {
		for i := range l.APIResources {
			l.APIResources[i].Verbs = slices.DeleteFunc(l.APIResources[i].Verbs, func(v string) bool { return v == "deletecollection" })
		}
	}
	if !p.healed.Load() {
		err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "a.io", Version: "v1"}: errors.New("it is down")}}
	}
	return lists, err
}

// TestWhatIsNotKnownHoldsANamespace: what can be deleted is, and the namespace stays until all is known.
func TestWhatIsNotKnownHoldsANamespace(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	known, err := discovery.NewDiscoveryClientForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	p := &poorDiscovery{real: known}
	c, err := namespace.New(namespace.Config{
		Client: w.Client, Metadata: w.Metadata, Discovery: p, Namespaces: factory.Core().V1().Namespaces(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	factory.StartWithContext(ctx)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})

	w.namespace("doomed")
	w.configMap("doomed", "a")
	w.configMap("doomed", "b")
	w.delete("doomed")
	w.untilCondition("doomed", corev1.NamespaceDeletionDiscoveryFailure, "Discovery failed for some groups, 1 failing: ")
	w.AwaitGone(configMapResource, "doomed", "a")
	w.AwaitGone(configMapResource, "doomed", "b")
	w.untilCondition("doomed", corev1.NamespaceContentRemaining, "")
	p.healed.Store(true)
	w.AwaitGone(namespaceResource, "", "doomed")
}
