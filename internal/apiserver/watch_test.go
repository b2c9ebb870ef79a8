package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

func portOf(a net.Addr) int { return a.(*net.TCPAddr).Port }

// client-go against the server, in JSON and in protobuf.
func TestClientGo(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(media, func(t *testing.T) {
			cfg := i.AdminConfig()
			cfg.ContentType = media
			c := i.client(t, cfg)
			ns := fmt.Sprintf("ns-%d", len(media))
			if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Run("watch", func(t *testing.T) { watchOne(t, c, ns) })
			t.Run("informer", func(t *testing.T) { informOne(t, c, ns) })
			t.Run("conflicts", func(t *testing.T) { conflict(t, c, ns) })
			t.Run("pages", func(t *testing.T) { pages(t, c, ns) })
		})
	}
}

func watchOne(t *testing.T, c kubernetes.Interface, ns string) {
	maps := c.CoreV1().ConfigMaps(ns)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "seen=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{"seen": "yes"}}}
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// It no longer matches: for this watch it is deleted.
	if _, err := maps.Patch(t.Context(), "w", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/labels/seen"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case e := <-w.ResultChan():
			if e.Type != want || e.Object.(*corev1.ConfigMap).Name != "w" {
				t.Fatalf("event %v %v, want %v of w", e.Type, e.Object, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %v", want)
		}
	}
}

// Informers of client-go stream their first list through a watch (WatchList).
func informOne(t *testing.T, c kubernetes.Interface, ns string) {
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().Secrets().Informer()
	added := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(*corev1.Secret).Name }}); err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		if _, err := c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	ctx, cancel := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer cancel()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	create("after")
	for _, want := range []string{"before", "after"} {
		select {
		case got := <-added:
			if got != want {
				t.Errorf("informed of %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("not informed of %q", want)
		}
	}
}

// Of many who update the same version of an object one wins at a time, and no update is lost.
func conflict(t *testing.T, c kubernetes.Interface, ns string) {
	maps := c.CoreV1().ConfigMaps(ns)
	created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}, Data: map[string]string{}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const writers = 8
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				cm, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if cm.Data == nil {
					cm.Data = map[string]string{}
				}
				cm.Data[fmt.Sprint(n)] = "x"
				_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
				return err
			})
			// Patches are merged by the server, which tries again by itself.
			if err != nil {
				_, err = maps.Patch(t.Context(), "counter", types.StrategicMergePatchType, []byte(fmt.Sprintf(`{"data":{"%d":"x"}}`, n)), metav1.PatchOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	final, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
	if err != nil || len(final.Data) != writers {
		t.Errorf("after %d writers the data is %v (%v)", writers, final.Data, err)
	}
	if _, err := maps.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want Conflict", err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second of the name: %v, want AlreadyExists", err)
	}
	named, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}}, metav1.CreateOptions{})
	if err != nil || len(named.Name) <= len("gen-") {
		t.Errorf("generated name: %+v, %v", named, err)
	}
}

func pages(t *testing.T, c kubernetes.Interface, ns string) {
	maps := c.CoreV1().ConfigMaps(ns)
	for n := range 7 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%d", n), Labels: map[string]string{"paged": "yes"}}}
		if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen, options := 0, metav1.ListOptions{Limit: 3, LabelSelector: "paged=yes"}
	for {
		list, err := maps.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(list.Items)
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if seen != 7 {
		t.Errorf("pages of three gave %d objects, want 7", seen)
	}
}

// A watch of what has no cache begins after the newest revision, and says nothing for as long as nothing is written.
func TestListsBesideIdleWatches(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c := i.admin(t)
	events, err := c.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: events.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var took time.Duration
	for range 5 { // a slow machine takes longer now and then; a cache that waits does so each time
		begin := time.Now()
		if _, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		// The library's watch cache gives up to wait for etcd after 3 s.
		if took = time.Since(begin); took <= 2500*time.Millisecond {
			break
		}
	}
	if took > 2500*time.Millisecond {
		t.Errorf("a list took %v: the caches wait for a stream that they share with a client's watch", took)
	}
}
