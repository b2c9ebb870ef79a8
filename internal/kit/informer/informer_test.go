package informer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestLast(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for what, c := range map[string]struct {
		obj  any
		is   bool
		also bool // an object of any kind
	}{
		"a pod":                         {pod, true, true},
		"one that went in a gap":        {cache.DeletedFinalStateUnknown{Key: "x/p", Obj: pod}, true, true},
		"another kind":                  {&corev1.Node{}, false, true},
		"another kind, gone in a gap":   {cache.DeletedFinalStateUnknown{Key: "n", Obj: &corev1.Node{}}, false, true},
		"nothing":                       {nil, false, false},
		"a name of nothing that is had": {cache.DeletedFinalStateUnknown{Key: "x/p"}, false, false},
	} {
		got, ok := Last[*corev1.Pod](c.obj)
		if ok != c.is || ok && got != pod || !ok && got != nil {
			t.Errorf("%s: it is the pod %v, %t", what, got, ok)
		}
		if object, ok := Last[metav1.Object](c.obj); ok != c.also || ok != (object != nil) {
			t.Errorf("%s: it is the object %v, %t", what, object, ok)
		}
	}
}
