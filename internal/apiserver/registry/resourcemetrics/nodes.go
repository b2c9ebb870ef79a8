package resourcemetrics

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// nodes serves what nodes use.
type nodes struct {
	objects Objects
	usage   Usage
}

var (
	_ rest.Storage              = &nodes{}
	_ rest.Scoper               = &nodes{}
	_ rest.SingularNameProvider = &nodes{}
	_ rest.Getter               = &nodes{}
	_ rest.Lister               = &nodes{}
)

// New implements rest.Storage.
func (*nodes) New() runtime.Object { return &v1beta1.NodeMetrics{} }

// Destroy implements rest.Storage.
func (n *nodes) Destroy() { n.usage.Close() }

// NamespaceScoped implements rest.Scoper.
func (*nodes) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider. Nodes themselves have the name "node".
func (*nodes) GetSingularName() string { return "" }

// NewList implements rest.Lister.
func (*nodes) NewList() runtime.Object { return &v1beta1.NodeMetricsList{} }

// Get implements rest.Getter.
func (n *nodes) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	node, err := n.objects.Node(ctx, name, false)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(v1beta1.Resource("nodemetrics"), name)
	}
	if err != nil {
		return nil, err
	}
	u, err := n.usage.Of(ctx, name)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s: what it uses is not known: %v", name, err))
	}
	m, ok := nodeMetrics(node, u, time.Now())
	if !ok {
		return nil, apierrors.NewNotFound(v1beta1.Resource("nodemetrics"), name)
	}
	return m, nil
}

// List implements rest.Lister.
func (n *nodes) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	all, err := n.objects.Nodes(ctx, options(o))
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	used, now := together(ctx, n.usage, names), time.Now()
	list := &v1beta1.NodeMetricsList{Items: []v1beta1.NodeMetrics{}}
	for i := range all {
		if m, ok := nodeMetrics(&all[i], used[all[i].Name], now); ok {
			list.Items = append(list.Items, *m)
		}
	}
	return list, nil
}

// ConvertToTable implements rest.TableConvertor.
func (*nodes) ConvertToTable(ctx context.Context, object, o runtime.Object) (*metav1.Table, error) {
	used := func(name corev1.ResourceName) func(*v1beta1.NodeMetrics) any {
		return func(m *v1beta1.NodeMetrics) any {
			q := m.Usage[name]
			return q.String()
		}
	}
	return resource.NewTable([]resource.Column[*v1beta1.NodeMetrics]{
		{Name: "Name"},
		{Name: "cpu", Doc: "Processors in use.", Value: used(corev1.ResourceCPU)},
		{Name: "memory", Doc: "Memory in use that cannot be taken back at once.", Value: used(corev1.ResourceMemory)},
		{Name: "Window", Doc: "The time during which the processors were used.", Value: func(m *v1beta1.NodeMetrics) any { return m.Window.Duration.String() }},
	}, nil).ConvertToTable(ctx, object, o)
}
