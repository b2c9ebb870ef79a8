package podgc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func endedPod(i int) *corev1.Pod {
	name := fmt.Sprintf("p%06d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(i/3), 0))},
		Status:     corev1.PodStatus{Phase: corev1.PodSucceeded},
	}
}

// TestEnded: whoever ends, is deleted or goes, in whichever order: the oldest are beyond.
func TestEnded(t *testing.T) {
	var e ended
	var want []string
	for _, i := range rand.Perm(200) {
		pod := endedPod(i)
		running := pod.DeepCopy()
		running.Status.Phase = corev1.PodRunning
		if e.see(running) || !e.see(pod) || e.see(pod) {
			t.Fatal("a pod is among those that have ended before it has, or is so twice, or never")
		}
		switch rand.N(4) {
		case 0:
			e.forget(pod.UID)
			e.forget(pod.UID)
		case 1:
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			e.see(pod)
		default:
			want = append(want, pod.Name)
		}
	}
	slices.Sort(want)
	var got []string
	for _, one := range e.beyond(30) {
		got = append(got, one.Name)
	}
	if !slices.Equal(got, want[:max(0, len(want)-30)]) || len(e.in) != 30 || len(e.oldest) != 30 || len(e.beyond(30)) != 0 {
		t.Errorf("beyond are %v, want %v; %d and %d are left", got, want[:len(want)-30], len(e.in), len(e.oldest))
	}
}

// BenchmarkEnded is the end of one more pod than are kept.
func BenchmarkEnded(b *testing.B) {
	for _, n := range []int{10, 1000, keptEnded} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var e ended
			i := 0
			for ; i < n; i++ {
				e.see(endedPod(i))
			}
			for b.Loop() {
				e.see(endedPod(i))
				if i++; len(e.beyond(n)) != 1 {
					b.Fatal("none is beyond")
				}
			}
		})
		b.Run(fmt.Sprint(n, ", all sorted"), func(b *testing.B) { // as it was
			var all []*corev1.Pod
			for i := range n + 1 {
				all = append(all, endedPod(i))
			}
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for b.Loop() {
				slices.SortFunc(slices.Clone(all), func(p, q *corev1.Pod) int {
					return cmp.Or(p.CreationTimestamp.Compare(q.CreationTimestamp.Time), cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
				})
			}
		})
	}
}
