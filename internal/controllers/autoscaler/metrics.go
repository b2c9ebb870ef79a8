package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// usualWindow is the time that was measured where a custom metric does not say.
const usualWindow = time.Minute

// Client asks an API server for metrics: metrics.k8s.io, and custom.metrics.k8s.io and external.metrics.k8s.io where it has them.
type Client struct {
	resource resourceclient.MetricsV1beta1Interface
	custom   custom_metrics.CustomMetricsClient
	versions custom_metrics.AvailableAPIsGetter
	external external_metrics.ExternalMetricsClient
}

// NewClient returns a client, which asks for nothing yet. mapper tells which resources the objects are that custom metrics are of.
func NewClient(config *rest.Config, connection *http.Client, from discovery.DiscoveryInterface, mapper meta.RESTMapper) (*Client, error) {
	c := &Client{versions: custom_metrics.NewAvailableAPIsGetter(from)}
	c.custom = custom_metrics.NewForConfig(config, mapper, c.versions)
	var resourceErr, externalErr error
	c.resource, resourceErr = resourceclient.NewForConfigAndClient(config, connection)
	c.external, externalErr = external_metrics.NewForConfig(config)
	if err := errors.Join(resourceErr, externalErr); err != nil {
		return nil, fmt.Errorf("client of metrics: %w", err)
	}
	return c, nil
}

// Observe implements Metrics.
func (c *Client) Observe(ctx context.Context, namespace string, pods labels.Selector, spec *autoscalingv2.MetricSpec) (o Observation) {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		o.Samples, o.Err = c.resources(ctx, namespace, pods, spec.Resource.Name, "")
	case autoscalingv2.ContainerResourceMetricSourceType:
		o.Samples, o.Err = c.resources(ctx, namespace, pods, spec.ContainerResource.Name, spec.ContainerResource.Container)
	case autoscalingv2.PodsMetricSourceType:
		o.Samples, o.Err = c.pods(namespace, pods, spec.Pods.Metric)
	case autoscalingv2.ObjectMetricSourceType:
		o.Values, o.Err = c.object(namespace, spec.Object.DescribedObject, spec.Object.Metric)
	case autoscalingv2.ExternalMetricSourceType:
		o.Values, o.Err = c.externals(namespace, spec.External.Metric)
	}
	return o
}

// resources is what pods, or a container of each of them, use of a resource.
func (c *Client) resources(ctx context.Context, namespace string, pods labels.Selector, name corev1.ResourceName, container string) (map[string]Sample, error) {
	list, err := c.resource.PodMetricses(namespace).List(ctx, metav1.ListOptions{LabelSelector: pods.String()})
	if err != nil {
		return nil, fmt.Errorf("unable to get metrics for resource %s: unable to fetch metrics from resource metrics API: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("unable to get metrics for resource %s: no metrics returned from resource metrics API", name)
	}
	samples := map[string]Sample{}
	for i := range list.Items {
		if value, has := usage(list.Items[i].Containers, name, container); has {
			samples[list.Items[i].Name] = Sample{Value: value, At: list.Items[i].Timestamp.Time, Window: list.Items[i].Window.Duration}
		}
	}
	return samples, nil
}

// usage is what the containers of a pod, or one of them, use of a resource, in thousandths. Of a pod it is known if it is of all its containers.
func usage(containers []metricsv1beta1.ContainerMetrics, name corev1.ResourceName, container string) (sum int64, has bool) {
	for i := range containers {
		if container != "" && containers[i].Name != container {
			continue
		}
		value, known := containers[i].Usage[name]
		if !known {
			return 0, false
		}
		sum, has = sum+value.MilliValue(), true
	}
	return sum, has
}

// pods is what a custom metric says of pods.
func (c *Client) pods(namespace string, pods labels.Selector, of autoscalingv2.MetricIdentifier) (map[string]Sample, error) {
	selector, err := metav1.LabelSelectorAsSelector(of.Selector)
	if err != nil {
		return nil, err
	}
	list, err := c.custom.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, pods, of.Name, selector)
	if err != nil {
		c.versions.Invalidate() // the API server may have another version by now
		return nil, fmt.Errorf("unable to get metric %s: unable to fetch metrics from custom metrics API: %w", of.Name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("unable to get metric %s: no metrics returned from custom metrics API", of.Name)
	}
	samples := map[string]Sample{}
	for i := range list.Items {
		m := &list.Items[i]
		window := usualWindow
		if m.WindowSeconds != nil {
			window = time.Duration(*m.WindowSeconds) * time.Second
		}
		samples[m.DescribedObject.Name] = Sample{Value: m.Value.MilliValue(), At: m.Timestamp.Time, Window: window}
	}
	return samples, nil
}

// object is what a custom metric says of an object. An object of the kind Namespace is the autoscaler's own namespace, whatever it is called.
func (c *Client) object(namespace string, ref autoscalingv2.CrossVersionObjectReference, of autoscalingv2.MetricIdentifier) ([]int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(of.Selector)
	if err != nil {
		return nil, err
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	var m *customv1beta2.MetricValue
	if kind == (schema.GroupKind{Kind: "Namespace"}) {
		m, err = c.custom.RootScopedMetrics().GetForObject(kind, namespace, of.Name, selector)
	} else {
		m, err = c.custom.NamespacedMetrics(namespace).GetForObject(kind, ref.Name, of.Name, selector)
	}
	if err != nil {
		c.versions.Invalidate()
		return nil, fmt.Errorf("unable to get metric %s on %s %s/%s: unable to fetch metrics from custom metrics API: %w", of.Name, ref.Kind, namespace, ref.Name, err)
	}
	return []int64{m.Value.MilliValue()}, nil
}

// externals are the values of an external metric.
func (c *Client) externals(namespace string, of autoscalingv2.MetricIdentifier) ([]int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(of.Selector)
	if err != nil {
		return nil, err
	}
	list, err := c.external.NamespacedMetrics(namespace).List(of.Name, selector)
	if err == nil && len(list.Items) == 0 {
		err = errors.New("no metrics returned from external metrics API")
	} else if err != nil {
		err = fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to get external metric %s/%s/%+v: %w", namespace, of.Name, of.Selector, err)
	}
	var values []int64
	for i := range list.Items {
		values = append(values, list.Items[i].Value.MilliValue())
	}
	return values, nil
}
