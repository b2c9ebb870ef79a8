package deployment

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// BenchmarkSync looks at one of so many deployments of a namespace that is as it should be, beside as many pods, and replica sets, that nobody owns.
func BenchmarkSync(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			factory := informers.NewSharedInformerFactory(nil, 0)
			apps, pods := factory.Apps().V1(), factory.Core().V1().Pods()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: "127.0.0.1:0"}) // nothing can be written
			if err != nil {
				b.Fatal(err)
			}
			c, err := New(Config{Client: client, Deployments: apps.Deployments(), Sets: apps.ReplicaSets(), Pods: pods, Events: record.NewFakeRecorder(1)})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				of := func(m *metav1.ObjectMeta, kind string) {
					m.Name = fmt.Sprint(kind, "-", i)
					m.UID, m.Labels = types.UID(m.Name), map[string]string{"app": m.Name}
				}
				d, rs := deployment(10, "3", "2"), set(1, "new", 10, 10, 10)
				of(&d.ObjectMeta, "web")
				of(&rs.ObjectMeta, "web")
				d.Spec.Selector.MatchLabels, rs.OwnerReferences = d.Labels, []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}
				for done := false; !done; { // until nothing is to be done
					plan := Decide(State{Deployment: d, Sets: []*appsv1.ReplicaSet{rs}, Now: now})
					for _, change := range plan.Change {
						rs = change.To
					}
					done = plan.Status == d && len(plan.Change) == 0
					d = plan.Status
				}
				bare, pod := set(1, "bare", 1, 1, 1), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}}
				of(&bare.ObjectMeta, "bare")
				of(&pod.ObjectMeta, "bare")
				if err := errors.Join(apps.Deployments().Informer().GetIndexer().Add(d), c.sets.GetIndexer().Add(rs), c.sets.GetIndexer().Add(bare), c.pods.GetIndexer().Add(pod)); err != nil {
					b.Fatal(err)
				}
			}
			obj, _, err := apps.Deployments().Informer().GetIndexer().GetByKey(fmt.Sprint("n/web-", n/2))
			d, ok := obj.(*appsv1.Deployment)
			if err != nil || !ok {
				b.Fatalf("no deployment: %v", err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.sync(b.Context(), d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
