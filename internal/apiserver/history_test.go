package apiserver_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A burst of writes leaves little behind in the caches, and yet a watch goes on from before it: no event is missed, and none told twice.
func TestWatchFromBeforeABurst(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c := i.admin(t)
	maps := c.CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"mine": "yes"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const writes = 600
	write := func(n int) {
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, n)
		if _, err := maps.Patch(t.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range writes {
		write(n)
	}
	for _, from := range []struct {
		what    string
		options metav1.ListOptions
	}{
		{"all", metav1.ListOptions{}},
		{"by a label", metav1.ListOptions{LabelSelector: "mine=yes"}},
		{"of one name", metav1.ListOptions{FieldSelector: "metadata.name=c"}},
	} {
		from.options.ResourceVersion = made.ResourceVersion
		w, err := maps.Watch(t.Context(), from.options)
		if err != nil {
			t.Fatal(err)
		}
		expectWrites(t, from.what, w, 0, writes)
		w.Stop()
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: made.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expectWrites(t, "before the next one", w, 0, writes)
	write(writes)
	expectWrites(t, "the next one", w, writes, writes+1)

	metrics, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^watch_cache_capacity\{group="",resource="configmaps"\} (\d+)$`).FindSubmatch(metrics)
	if found == nil {
		t.Fatal("there is no metric watch_cache_capacity of configmaps")
	}
	if kept, err := strconv.Atoi(string(found[1])); err != nil || kept > 400 {
		t.Errorf("the cache keeps up to %s events, want 400 at the most", found[1])
	}
}

// expectWrites reads the events of the writes from first until before end, which come one by one.
func expectWrites(t *testing.T, what string, w watch.Interface, first, end int) {
	t.Helper()
	for n := first; n < end; n++ {
		select {
		case e := <-w.ResultChan():
			if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Name == "c" && (e.Type != watch.Modified || cm.Data["n"] != strconv.Itoa(n)) {
				t.Fatalf("watch %s: write %d is told of as %v %v", what, n, e.Type, e.Object)
			} else if cm.Name != "c" {
				n-- // another's
			}
		case <-time.After(time.Minute):
			t.Fatalf("watch %s: nothing tells of write %d", what, n)
		}
	}
}
