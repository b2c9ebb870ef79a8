package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a pod says of itself in an annotation makes it nobody's but its user's.
func TestCritical(t *testing.T) {
	low, high := int32(0), int32(2_000_001_000)
	for name, c := range map[string]struct {
		pod           v1.Pod
		critical, own bool
	}{
		"any pod": {pod: v1.Pod{Spec: v1.PodSpec{Priority: &low}}},
		"one that says it is a file's": {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
			Spec: v1.PodSpec{PriorityClassName: "system-node-critical", Priority: &low}}},
		"one that says it is a mirror": {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: "x"}}}},
		"the cluster's":                {pod: v1.Pod{Spec: v1.PodSpec{Priority: &high, PriorityClassName: "system-cluster-critical"}}, critical: true},
		"the node's":                   {pod: v1.Pod{Spec: v1.PodSpec{Priority: &high, PriorityClassName: "system-node-critical"}}, critical: true, own: true},
	} {
		if Critical(&c.pod) != c.critical || NodeCritical(&c.pod) != c.own {
			t.Errorf("%s: %t %t", name, Critical(&c.pod), NodeCritical(&c.pod))
		}
	}
}

func TestIsExtended(t *testing.T) {
	for name, want := range map[v1.ResourceName]bool{
		"cpu": false, "hugepages-2Mi": false, "kubernetes.io/a": false, "storage.kubernetes.io/a": false, "requests.example.com/a": false,
		"example.com/a": true, "notkubernetes.io/a": true,
	} {
		if IsExtended(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
