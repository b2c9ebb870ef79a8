package event

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/apiserver/scheme"
	"monopod.dev/monopod/internal/apiserver/store"
)

// TestEventsAreNotKept stores an event in a real etcd and asks that for how long.
func TestEventsAreNotKept(t *testing.T) {
	dir, err := os.MkdirTemp("", "ev") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := etcd.Start(t.Context(), etcd.Config{
		DataDir: filepath.Join(dir, "d"), SocketDir: filepath.Join(dir, "s"), Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	set, err := scheme.New(AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	objects := store.New(store.Config{Client: server.Client(), Codecs: set.Codecs})
	t.Cleanup(objects.Close)
	storages, err := Resource().Open(objects)
	if err != nil {
		t.Fatal(err)
	}
	events := storages["events"].(rest.StandardStorage)
	t.Cleanup(events.Destroy)
	if err := objects.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}

	ctx := genericrequest.WithNamespace(genericrequest.NewContext(), "ns")
	for _, reason := range []string{"Started", "Failed"} {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "e-", Namespace: "ns"},
			InvolvedObject: corev1.ObjectReference{Namespace: "ns", Name: "p"}, Reason: reason,
		}
		if _, err := events.Create(ctx, e, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := events.List(ctx, &internalversion.ListOptions{FieldSelector: fields.SelectorFromSet(fields.Set{"reason": "Failed", "involvedObject.name": "p"})})
	if err != nil {
		t.Fatal(err)
	}
	if items := list.(*corev1.EventList).Items; len(items) != 1 || items[0].Reason != "Failed" {
		t.Errorf("selected events %+v, want the one that failed", items)
	}

	found, err := server.Client().Get(ctx, "/registry/events/", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 2 {
		t.Fatalf("in etcd: %v, %v", found, err)
	}
	lease, err := server.Client().TimeToLive(ctx, clientv3.LeaseID(found.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	// The store shares leases among keys, so one may live a little longer.
	if got := time.Duration(lease.GrantedTTL) * time.Second; got < TTL || got > TTL+TTL/10 {
		t.Errorf("events are kept for %v, want about %v", got, TTL)
	}
}
