package storage_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/test/apitest"
)

// BenchmarkClaims makes claims that get their volumes at once, by the real controllers, and removes them:
//
//	go test ./internal/storage -run '^$' -bench Claims -benchtime 1000x
func BenchmarkClaims(b *testing.B) {
	w := &world{API: apitest.Start(b), dir: b.TempDir() + "/volumes"}
	w.Control(catalog.ClaimProtection, catalog.VolumeProtection, catalog.VolumeBinding)
	w.run()
	w.Await(classesOf, "", plan.ClassName, "made", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	class, now := plan.Class(false), storagev1.VolumeBindingImmediate
	class.Name, class.VolumeBindingMode = "now", &now
	if _, err := w.Client.StorageV1().StorageClasses().Create(b.Context(), class, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	claims := w.Client.CoreV1().PersistentVolumeClaims(namespace)
	all := make([]*corev1.PersistentVolumeClaim, b.N)
	each := func(f func(i int)) time.Duration {
		begin := time.Now()
		var wait sync.WaitGroup
		next := make(chan int)
		for range 16 {
			wait.Go(func() {
				for i := range next {
					f(i)
				}
			})
		}
		for i := range b.N {
			next <- i
		}
		close(next)
		wait.Wait()
		return time.Since(begin)
	}
	b.ResetTimer()
	made := each(func(i int) {
		all[i] = w.claim(fmt.Sprint("c", i), func(c *corev1.PersistentVolumeClaim) { c.Annotations, c.Spec.StorageClassName = nil, &class.Name })
		w.Await(claimsOf, namespace, all[i].Name, "bound", func(o *metav1.PartialObjectMetadata) bool {
			return o.Annotations["pv.kubernetes.io/bind-completed"] != ""
		})
	})
	gone := each(func(i int) {
		if err := claims.Delete(b.Context(), all[i].Name, metav1.DeleteOptions{}); err != nil {
			b.Error(err)
		}
		w.AwaitGone(volumesOf, "", plan.VolumeName(all[i]))
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/made.Seconds(), "made/s")
	b.ReportMetric(float64(b.N)/gone.Seconds(), "removed/s")
}
