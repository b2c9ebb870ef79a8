package binder

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// BenchmarkDecision is what it takes to find a node for a pod where 109 others are.
func BenchmarkDecision(b *testing.B) {
	s := newStage(b, 0, "")
	s.end()
	decide := func(b *testing.B, pod *corev1.Pod, storage func() cluster) {
		nodes := []*corev1.Node{s.node(b)}
		for b.Loop() {
			var d decision
			s.book.look(nodes, func(places []place) {
				in := storage()
				in.places, in.namespaces, in.own = places, s.terms, s.ownPorts
				d = s.decide(pod, in)
			})
			if d.node == "" {
				b.Fatal(d.why)
			}
		}
	}
	b.Run("no claim", func(b *testing.B) {
		decide(b, s.pod("resources: {requests: {cpu: 1}}"), func() cluster { return cluster{storage: s.prospect} })
	})
	for i := range 1000 { // of other pods
		name := fmt.Sprint("c", i)
		if err := errors.Join(s.nodes.Core().V1().PersistentVolumes().Informer().GetIndexer().Add(stored("v"+name, heldBy(name), thereOn("n"))),
			s.nodes.Core().V1().PersistentVolumeClaims().Informer().GetIndexer().Add(claimed(name, boundTo("v"+name)))); err != nil {
			b.Fatal(err)
		}
	}
	s.node(b).Labels[corev1.LabelHostname] = "n"
	if err := errors.Join(s.nodes.Core().V1().PersistentVolumeClaims().Informer().GetIndexer().Add(claimed("unbound")),
		s.nodes.Storage().V1().StorageClasses().Informer().GetIndexer().Add(classed("late", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer))); err != nil {
		b.Fatal(err)
	}
	for name, claim := range map[string]string{"a claim that is bound": "c500", "a claim that is not": "unbound"} {
		b.Run(name, func(b *testing.B) {
			decide(b, having(claim), func() cluster { return cluster{storage: s.prospect} })
		})
	}
}

func (s *stage) node(t testing.TB) *corev1.Node {
	node, err := s.Binder.nodes.Get("n")
	if err != nil {
		t.Fatal(err)
	}
	return node
}
