package controllers_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/garbage"
	"monopod.dev/monopod/test/apitest"
)

// growingDiscovery is the discovery of a server that has no leases at first, and does not answer at all once.
type growingDiscovery struct {
	real  garbage.Discovery
	grown atomic.Bool
	asked atomic.Int32
}

func (g *growingDiscovery) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if g.asked.Add(1) == 1 {
		return nil, nil, errors.New("it is down")
	}
	groups, lists, err := g.real.ServerGroupsAndResourcesWithContext(ctx)
	if !g.grown.Load() {
		groups = slices.DeleteFunc(groups, func(a *metav1.APIGroup) bool { return a.Name == "coordination.k8s.io" })
		lists = slices.DeleteFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "coordination.k8s.io/v1" })
		if err == nil { // a group that does not answer takes nothing away from the others
			err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "coordination.k8s.io", Version: "v1"}: errors.New("it is down")}}
		}
	}
	return groups, lists, err
}

// TestOwnersKindsThatComeLater: what is owned by a kind that nobody knows stays until the kind is known.
func TestOwnersKindsThatComeLater(t *testing.T) {
	w := owners{apitest.Start(t)}
	known, err := discovery.NewDiscoveryClientForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	g := &growingDiscovery{real: known}
	c := garbage.New(garbage.Config{Metadata: w.Metadata, Discovery: g, Events: record.NewFakeRecorder(10), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	lease := metav1.OwnerReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: "l", UID: "0b3a8c6e-5d1f-4a52-9f5a-1f2d3c4b5a69"}
	w.secret("s", nil, lease)
	w.settle()
	w.stays("s")
	g.grown.Store(true)
	w.AwaitGone(secretResource, "default", "s")
}
