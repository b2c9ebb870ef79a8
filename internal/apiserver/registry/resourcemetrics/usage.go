package resourcemetrics

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"monopod.dev/monopod/internal/apiserver/nodeusage"
)

// together asks for several nodes at once. Those that did not answer are left out.
func together(ctx context.Context, usage Usage, names []string) map[string]*nodeusage.Usage {
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[string]*nodeusage.Usage{}
	for _, name := range names {
		wg.Go(func() {
			if u, err := usage.Of(ctx, name); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all[name] = u
			}
		})
	}
	wg.Wait()
	return all
}

// listOf is what is used, as the API has it.
func listOf(u nodeusage.Used) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(u.NanoCores, resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(u.Memory, resource.BinarySI),
	}
}

// metadataOf is that of what is told now of an object.
func metadataOf(namespace, name string, labels map[string]string, now time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(now)}
}

// nodeMetrics are those of a node; false: its agent does not tell.
func nodeMetrics(node *corev1.Node, u *nodeusage.Usage, now time.Time) (*v1beta1.NodeMetrics, bool) {
	if u == nil || u.Node == nil {
		return nil, false
	}
	return &v1beta1.NodeMetrics{
		ObjectMeta: metadataOf("", node.Name, node.Labels, now),
		Timestamp:  metav1.NewTime(u.Node.At), Window: metav1.Duration{Duration: u.Node.Window}, Usage: listOf(*u.Node),
	}, true
}

// podMetrics are those of a pod whose containers were not all made this very moment. The time is that of the container that was read first.
func podMetrics(pod *corev1.Pod, u *nodeusage.Usage, now time.Time) (*v1beta1.PodMetrics, bool) {
	if u == nil {
		return nil, false
	}
	containers := u.Containers[nodeusage.PodKey{Namespace: pod.Namespace, Name: pod.Name}]
	if len(containers) == 0 {
		return nil, false
	}
	m := &v1beta1.PodMetrics{ObjectMeta: metadataOf(pod.Namespace, pod.Name, pod.Labels, now)}
	for name, used := range containers {
		if at := metav1.NewTime(used.At); m.Timestamp.IsZero() || at.Before(&m.Timestamp) {
			m.Timestamp, m.Window = at, metav1.Duration{Duration: used.Window}
		}
		m.Containers = append(m.Containers, v1beta1.ContainerMetrics{Name: name, Usage: listOf(used)})
	}
	slices.SortFunc(m.Containers, func(a, b v1beta1.ContainerMetrics) int { return strings.Compare(a.Name, b.Name) })
	return m, true
}
