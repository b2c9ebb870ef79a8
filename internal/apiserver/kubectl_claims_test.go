package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestKubectlPrune: `kubectl apply --prune` looks through claims and volumes, too, of which there are none; whoever makes one is told why not.
func TestKubectlPrune(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	k := i.kubectl(t)
	configMap := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{"app":"a"}}}` + "\n"
	}
	k.run("create", "namespace", "prune")
	k.feed(configMap("one")+configMap("two"), "-n", "prune", "apply", "--prune", "-l", "app=a", "-f", "-")
	k.feed(configMap("one"), "-n", "prune", "apply", "--prune", "-l", "app=a", "-f", "-")
	if got := k.run("-n", "prune", "get", "configmaps", "-l", "app=a", "-o", "name"); got != "configmap/one\n" {
		t.Errorf("what is left is %q", got)
	}
	for kind, scope := range map[string]string{"PersistentVolumeClaim": "pvc", "PersistentVolume": "pv"} {
		if got := k.run("get", scope, "-A", "-o", "name"); got != "" {
			t.Errorf("%s: %q", kind, got)
		}
		object := `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"}}}`
		if kind == "PersistentVolumeClaim" {
			object = `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
		}
		for _, how := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side"}} {
			k.fail("\"data\" is forbidden: not supported by Monopod yet: use a volume of the kind emptyDir or hostPath", object, append(how, "-f", "-")...)
		}
		k.fail("not found", "", "get", scope, "data")
	}
	yes := true
	w, err := i.admin(t).CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	mark, ok := eventOf(t, w, watch.Bookmark).(*corev1.PersistentVolume)
	if !ok || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the end of what there is at first is told by %+v", mark)
	}
}
