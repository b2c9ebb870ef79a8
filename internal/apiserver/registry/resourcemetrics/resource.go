// Package resourcemetrics serves the resources nodes and pods of metrics.k8s.io/v1beta1: what nodes and pods use now, for `kubectl top` and autoscalers.
//
// Nothing of it is stored. Nodes and pods are those of the API, found by their names and labels; what they use their agents tell (package nodeusage). What an agent does not
// tell is not in a list: neither a node whose agent does not answer nor its pods.
package resourcemetrics

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"monopod.dev/monopod/internal/apiserver/nodeusage"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// Objects reads the API's nodes and pods.
type Objects interface {
	Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error)
	Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error)
	// Nodes and Pods are those that the selectors of the options let through; namespace may be empty, for all.
	Nodes(ctx context.Context, options *metainternalversion.ListOptions) ([]corev1.Node, error)
	Pods(ctx context.Context, namespace string, options *metainternalversion.ListOptions) ([]corev1.Pod, error)
}

// Usage tells what nodes use.
type Usage interface {
	// Of waits for some seconds at most.
	Of(ctx context.Context, node string) (*nodeusage.Usage, error)
	Close()
}

// Resources are both.
func Resources(objects Objects, usage Usage) []resource.Resource {
	made := func(name string, storage rest.Storage) resource.Resource {
		return resource.PartOf(v1beta1.SchemeGroupVersion.WithResource(name), map[string]rest.Storage{name: storage})
	}
	return []resource.Resource{
		made("nodes", &nodes{objects: objects, usage: usage}), made("pods", &pods{objects: objects, usage: usage}),
	}
}

// options are those of a list of the objects that are meant: their labels and names are the metrics' own. The cache has them.
func options(of *metainternalversion.ListOptions) *metainternalversion.ListOptions {
	o := &metainternalversion.ListOptions{ResourceVersion: "0"}
	if of != nil {
		o.LabelSelector, o.FieldSelector = of.LabelSelector, of.FieldSelector
	}
	return o
}
