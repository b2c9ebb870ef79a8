package env

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// Field is the value of one field of the pod, by the path that the downward API uses.
func Field(pod *v1.Pod, path string, podIPs, hostIPs []string) (string, error) {
	if base, key, ok := pods.Subscript(path); ok {
		switch base {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("field path %q: only metadata.labels and metadata.annotations have keys", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return pairs(pod.Labels), nil
	case "metadata.annotations":
		return pairs(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	case "status.hostIP":
		return first(hostIPs), nil
	case "status.hostIPs":
		return strings.Join(hostIPs, ","), nil
	}
	return "", fmt.Errorf("field path %q is not one that a pod can refer to", path)
}

func pairs(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(lines, "\n")
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// Resource is a request or limit of a container divided by the reference's divisor, rounded up. A limit that is not set
// is the pod's, or the node's allocatable amount; a request that is not set is the limit.
func Resource(pod *v1.Pod, container string, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("resource %q: must be limits.NAME or requests.NAME", ref.Resource)
	}
	r := v1.ResourceName(name)
	has := allocated.Of(pod)
	own := has.Container(container)
	q, found := own.Limits[r]
	if kind == "requests" {
		if request, ok := own.Requests[r]; ok {
			q, found = request, true
		} else if !found {
			q, found = resource.Quantity{}, true
		}
	}
	if !found {
		q = has.Bounds(allocatable)[r]
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	if r == v1.ResourceCPU {
		return strconv.FormatInt(ceilDiv(q.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceilDiv(q.Value(), divisor.Value()), 10), nil
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
