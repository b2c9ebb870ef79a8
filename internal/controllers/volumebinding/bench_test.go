package volumebinding

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// BenchmarkClaim looks at a claim that waits for a volume of its class, beside so many claims that are bound, and volumes of other classes.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			factory := informers.NewSharedInformerFactory(nil, 0)
			core := factory.Core().V1()
			c, err := New(Config{
				Claims: core.PersistentVolumeClaims(), Volumes: core.PersistentVolumes(), Pods: core.Pods(), Classes: factory.Storage().V1().StorageClasses(),
				Events: record.NewFakeRecorder(1), Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			waits := claimed(of("slow"))
			errs := []error{c.claims.informer.GetIndexer().Add(waits), factory.Storage().V1().StorageClasses().Informer().GetIndexer().Add(class("slow", "kubernetes.io/none", "Immediate"))}
			for i := range n {
				claim := claimed(in(fmt.Sprint("v", i)), of("fast"), noted(completed))
				claim.Name, claim.UID = fmt.Sprint("c", i), types.UID(fmt.Sprint("u", i))
				errs = append(errs, c.claims.informer.GetIndexer().Add(claim),
					c.volumes.informer.GetIndexer().Add(sized(fmt.Sprint("v", i), "2Gi", classed("fast"), kept(claim.Name, claim.UID), phased(corev1.VolumeBound))),
					c.volumes.informer.GetIndexer().Add(sized(fmt.Sprint("w", i), "2Gi", classed("fast"))))
			}
			if err := errors.Join(errs...); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := c.syncClaim(b.Context(), cache.MetaObjectToName(waits)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
