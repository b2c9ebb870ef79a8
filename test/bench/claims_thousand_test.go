package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/test/harness"
)

const (
	thousandClaims = 1000
	// claimClients is how many requests are under way at a time.
	claimClients = 16
	// claimPatience is how long so many claims may take at most.
	claimPatience = 20 * time.Minute
)

// many are claims that are made and removed.
type many struct {
	*testing.B
	n      *harness.Node
	client kubernetes.Interface
	// class of the claims; node is what their pods would have had the binder write into them.
	class, node string
}

// BenchmarkThousandClaims makes a thousand claims and removes them again, so often as there are kinds of them, and not more: of a class that makes volumes at once,
// and of the default class, when the node of their pods is known. Pods are no part of it. The goal is 30 claims a second.
//
// What the watches show counts: made are claims that are Bound, removed are claims whose PersistentVolume is gone.
func BenchmarkThousandClaims(b *testing.B) {
	long(b)
	for b.Loop() { // they are enough
	}
	n := start(b, "up")
	c := client(b, n)
	awaitClass(b, c)
	newClass(b, c, "at-once", "auto", storagev1.VolumeBindingImmediate)
	fmt.Printf("\n%-36s %8s %8s %8s %12s %12s %12s\n", fmt.Sprint(thousandClaims, " claims"), "made/s", "gone/s", "both/s", "made, CPU ms", "gone, CPU ms", "writes each")
	for name, m := range map[string]many{"at-once": {b, n, c, "at-once", ""}, "selected": {b, n, c, defaultClass, n.Name}} {
		m.round(name)
	}
	b.ReportMetric(0, "ns/op")
}

// round makes and removes them once, and tells of it.
func (m many) round(name string) {
	m.Helper()
	begun, cpu, version := time.Now(), processTime(m.B, m.n.PID()), m.version()
	had := m.requests()
	m.made(name)
	made, madeCPU := time.Since(begun), processTime(m.B, m.n.PID())
	m.removed(name)
	gone, goneCPU := time.Since(begun)-made, processTime(m.B, m.n.PID())
	rate := func(d time.Duration) float64 { return thousandClaims / d.Seconds() }
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / thousandClaims }
	fmt.Printf("%-36s %8.1f %8.1f %8.1f %12.1f %12.1f %12.1f\n", name, rate(made), rate(gone), rate(made+gone), each(madeCPU-cpu), each(goneCPU-madeCPU),
		float64(m.version()-version)/thousandClaims)
	now := m.requests()
	for _, kind := range slices.SortedFunc(maps.Keys(now), func(a, b string) int { return cmp.Compare(now[b]-had[b], now[a]-had[a]) }) {
		if each := (now[kind] - had[kind]) / thousandClaims; each >= 0.05 {
			fmt.Printf("    %-50s %8.2f a claim\n", kind, each)
		}
	}
	m.ReportMetric(rate(made), name+"-made/s")
	m.ReportMetric(rate(gone), name+"-gone/s")
	entries, err := os.ReadDir(filepath.Join(m.n.Dir, "data", "volumes"))
	must(m.B, err)
	for _, e := range entries {
		if e.Name()[0] != '.' {
			m.Errorf("the directory of a volume is left: %s", e.Name())
		}
	}
}

// requests are those that the API server has answered, by verb and resource.
func (m many) requests() map[string]float64 {
	m.Helper()
	raw, err := m.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	must(m.B, err)
	all := map[string]float64{}
	label := func(line, name string) string {
		_, rest, _ := strings.Cut(line, name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		resource := label(line, ",resource")
		if sub := label(line, "subresource"); sub != "" {
			resource += "/" + sub
		}
		count, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		must(m.B, err)
		all[label(line, "verb")+" "+resource+" "+label(line, "code")] += count
	}
	return all
}

// version is how many writes the store has seen.
func (m many) version() int {
	m.Helper()
	list, err := m.client.CoreV1().PersistentVolumeClaims("default").List(context.Background(), metav1.ListOptions{Limit: 1})
	must(m.B, err)
	version, err := strconv.Atoi(list.ResourceVersion)
	must(m.B, err)
	return version
}

// made makes the claims, and returns when all are Bound.
func (m many) made(name string) {
	m.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), claimPatience)
	defer cancel()
	done := map[string]bool{}
	wait := followAll(ctx, m.client.CoreV1().RESTClient(), "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim, _ bool) bool {
		if c.Status.Phase == corev1.ClaimBound {
			done[c.Name] = true
		}
		return len(done) == thousandClaims
	})
	m.all(name, func(one string) error {
		claim := newClaim(one, m.class, "100Mi")
		if m.node != "" {
			claim.Annotations = map[string]string{selectedNode: m.node}
		}
		_, err := m.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
		return err
	}, wait)
}

// removed removes them, and returns when all their volumes are gone.
func (m many) removed(name string) {
	m.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), claimPatience)
	defer cancel()
	left := thousandClaims
	wait := followAll(ctx, m.client.CoreV1().RESTClient(), "persistentvolumes", &corev1.PersistentVolume{}, func(_ *corev1.PersistentVolume, gone bool) bool {
		if gone {
			left--
		}
		return left == 0
	})
	m.all(name, func(one string) error {
		return m.client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, one, metav1.DeleteOptions{})
	}, wait)
}

// followAll looks at all objects of a resource, as they are now and as they change, until one is the last; gone: it was removed. A watch that falls behind is begun
// anew. wait waits for the last one.
func followAll[T runtime.Object](ctx context.Context, client cache.Getter, resource string, empty T, last func(object T, gone bool) bool) (wait func() error) {
	ctx, stop := context.WithCancel(ctx)
	seen, over := make(chan struct{}), false
	look := func(obj any, gone bool) { // one call at a time
		if o, ok := informer.Last[T](obj); ok && !over && last(o, gone) {
			over = true
			close(seen)
		}
	}
	_, following := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, resource, "", fields.Everything()), ObjectType: empty,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { look(obj, false) }, UpdateFunc: func(_, obj any) { look(obj, false) }, DeleteFunc: func(obj any) { look(obj, true) },
		},
	})
	go following.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), following.HasSynced)
	return func() error {
		defer stop()
		select {
		case <-seen:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// all does something with each of them, some at a time, while somebody waits for what comes of it.
func (m many) all(name string, do func(one string) error, wait func() error) {
	m.Helper()
	numbers := make(chan int, thousandClaims)
	for i := range thousandClaims {
		numbers <- i
	}
	close(numbers)
	var clients sync.WaitGroup
	for range claimClients {
		clients.Go(func() {
			for i := range numbers {
				if err := do(fmt.Sprint(name, "-", i)); err != nil {
					m.Error(err)
				}
			}
		})
	}
	err := wait()
	clients.Wait()
	must(m.B, err)
}
