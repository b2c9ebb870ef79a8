package resourcemetrics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	registry "monopod.dev/monopod/internal/apiserver/resource"
)

// pods serves what pods use.
type pods struct {
	objects Objects
	usage   Usage
}

var (
	_ rest.Storage              = &pods{}
	_ rest.Scoper               = &pods{}
	_ rest.SingularNameProvider = &pods{}
	_ rest.Getter               = &pods{}
	_ rest.Lister               = &pods{}
)

// New implements rest.Storage.
func (*pods) New() runtime.Object { return &v1beta1.PodMetrics{} }

// Destroy implements rest.Storage.
func (p *pods) Destroy() { p.usage.Close() }

// NamespaceScoped implements rest.Scoper.
func (*pods) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider. Pods themselves have the name "pod".
func (*pods) GetSingularName() string { return "" }

// NewList implements rest.Lister.
func (*pods) NewList() runtime.Object { return &v1beta1.PodMetricsList{} }

// Get implements rest.Getter.
func (p *pods) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	namespace := genericrequest.NamespaceValue(ctx)
	none := apierrors.NewNotFound(v1beta1.Resource("podmetrics"), namespace+"/"+name)
	pod, err := p.objects.Pod(ctx, namespace, name, false)
	if apierrors.IsNotFound(err) || err == nil && !runs(pod) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	u, err := p.usage.Of(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("pod %s/%s: what it uses is not known: %v", namespace, name, err))
	}
	m, ok := podMetrics(pod, u, time.Now())
	if !ok {
		return nil, none
	}
	return m, nil
}

// List implements rest.Lister.
func (p *pods) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	all, err := p.objects.Pods(ctx, genericrequest.NamespaceValue(ctx), options(o))
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for i := range all {
		if runs(&all[i]) {
			on[all[i].Spec.NodeName] = true
		}
	}
	used, now := together(ctx, p.usage, slices.Collect(maps.Keys(on))), time.Now()
	list := &v1beta1.PodMetricsList{Items: []v1beta1.PodMetrics{}}
	for i := range all {
		if !runs(&all[i]) {
			continue
		}
		if m, ok := podMetrics(&all[i], used[all[i].Spec.NodeName], now); ok {
			list.Items = append(list.Items, *m)
		}
	}
	return list, nil
}

// runs says whether a pod may use anything.
func runs(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning
}

// ConvertToTable implements rest.TableConvertor.
func (*pods) ConvertToTable(ctx context.Context, object, o runtime.Object) (*metav1.Table, error) {
	used := func(name corev1.ResourceName) func(*v1beta1.PodMetrics) any {
		return func(m *v1beta1.PodMetrics) any {
			var sum resource.Quantity
			for _, c := range m.Containers {
				sum.Add(c.Usage[name])
			}
			return sum.String()
		}
	}
	return registry.NewTable([]registry.Column[*v1beta1.PodMetrics]{
		{Name: "Name"},
		{Name: "cpu", Doc: "Processors in use.", Value: used(corev1.ResourceCPU)},
		{Name: "memory", Doc: "Memory in use that cannot be taken back at once.", Value: used(corev1.ResourceMemory)},
		{Name: "Window", Doc: "The time during which the processors were used.", Value: func(m *v1beta1.PodMetrics) any { return m.Window.Duration.String() }},
	}, nil).ConvertToTable(ctx, object, o)
}
